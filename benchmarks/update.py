"""Forward and backward of one iteration, one thread: what it saves to compute no more than the loss needs.

    OMP_NUM_THREADS=1 python benchmarks/update.py

Peer: a plain padded forward (every block on every token) in micro-batches of 16,384 tokens. Between it and
ours: the same without shared prompts. Processor time, in turns in one process, the least of five. Writes
benchmarks/results/update.json.

    OMP_NUM_THREADS=1 python benchmarks/update.py pieces

The presets with long transcripts instead: long tails attended to in pieces of queries, and in one piece.
Writes benchmarks/results/update_pieces.json.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import tempfile
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from iteration import RESULT

from bipace.policies import packing, scoring, scoring_forward
from bipace.policies.hf import Actor
from bipace.policies.scoring import score
from bipace.rollout.records import TokenSequence
from bipace.train.config import PRESETS, load_config
from bipace.train.loop import Run

WAYS = tuple(
    (way, tokens) for way in ("plain", "nothing shared", "shared prompts") for tokens in (16384, 4096, 2048)
)
REPEATS = 5


def plain(actor: Actor, sequences: Any, _: object, *arguments: Any) -> object:
    return scoring_forward.plain_states(actor.body, sequences, *arguments)


def alone(sequences: list[object], _: object) -> dict[int, list[int]]:
    return {i: [i] for i in range(len(sequences))}


def seconds(actor: Actor, sequences: list[TokenSequence], way: str, micro_tokens: int) -> float:
    sharing = packing._families if way == "shared prompts" else alone
    forward = plain if way == "plain" else scoring_forward.states_at
    start = time.process_time()
    with patch.object(packing, "_families", sharing), patch.object(scoring, "states_at", forward):
        for chosen in packing.micro_batches(
            [s.tokens for s in sequences], [s.spans for s in sequences], micro_tokens
        ):
            part = [sequences[i] for i in chosen]
            found = score(actor, [s.tokens for s in part], [s.spans for s in part], layer=None)
            found.logprobs.sum().backward()
    return time.process_time() - start


def measure(folder: str) -> dict[str, object]:
    suite = f"env.suite={Path(__file__).resolve().with_name('iteration.py')}:SUITE"
    config = load_config(
        overrides=[f"actor.folder={folder}", suite, "env.max_steps=8", "actor.threads=1", "env.held_out=[]"]
    )
    with tempfile.TemporaryDirectory() as place:
        run = Run(config, Path(place))
        sequences = [s for trajectory in run.collect() for s in trajectory.sequences]
    least = dict.fromkeys(WAYS, float("inf"))
    for _ in range(REPEATS):
        for way in WAYS:
            least[way] = min(least[way], seconds(run.actor, sequences, *way))
    value, peer = least["shared prompts", config.update.micro_tokens], least[WAYS[0]]
    ways = {f"{way}, {micro} tokens": found for (way, micro), found in least.items()}
    return {"figure": f"{folder}: forward and backward of 128 episodes x 8 steps", "unit": "s",
        "value": value,
            "peer": peer, "ratio": peer / value, "ways": ways}  # fmt: skip


def measure_pieces(preset: str) -> dict[str, object]:
    """The preset's own episodes."""
    config = load_config(PRESETS / f"{preset}.toml", overrides=["actor.threads=1", "env.held_out=[]"])
    with tempfile.TemporaryDirectory() as place:
        run = Run(config, Path(place))
        sequences = [s for trajectory in run.collect() for s in trajectory.sequences]
    times: dict[bool, list[float]] = {True: [], False: []}
    for _ in range(REPEATS):
        for pieces, found in times.items():
            with patch.object(
                scoring_forward, "LONG_TAIL", scoring_forward.LONG_TAIL if pieces else sys.maxsize
            ):
                found.append(seconds(run.actor, sequences, "shared prompts", config.update.micro_tokens))
    value, peer = min(times[True]), min(times[False])
    ratios = [whole / cut for cut, whole in zip(times[True], times[False], strict=True)]
    return {"figure": f"{preset} preset: forward and backward of an iteration, in pieces", "unit": "s",
            "value": value, "peer": peer, "ratio": peer / value, "ratios": ratios,
            "tokens": sum(len(s.tokens) for s in sequences)}  # fmt: skip


def main() -> None:
    torch.set_num_threads(1)
    pieces = sys.argv[1:] == ["pieces"]
    figures = (
        [measure_pieces(preset) for preset in ("alfworld", "webshop")]
        if pieces
        else [measure(folder) for folder in ("textcraft-small", "textcraft-medium")]
    )
    document = {
        "figures": figures,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, one used",
        "versions": {"python": platform.python_version(), "torch": torch.__version__},
        "date": datetime.now(timezone.utc).date().isoformat(),
        "command": " ".join(["OMP_NUM_THREADS=1 python benchmarks/update.py", *sys.argv[1:]]),
    }
    RESULT.with_name("update_pieces.json" if pieces else "update.json").write_text(
        json.dumps(document, indent=1) + "\n", encoding="utf-8"
    )
    json.dump(document["figures"], sys.stdout, indent=1)


if __name__ == "__main__":
    main()
