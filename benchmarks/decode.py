"""Decode and score a group rollout, and race the session against Hugging Face `generate`.

    OMP_NUM_THREADS=1 python benchmarks/decode.py

Writes benchmarks/results/decode.json.
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import transformers
from transformers import Qwen2Config, Qwen2ForCausalLM

from bipace.policies.hf import Actor
from bipace.policies.scoring import buckets, score

SHAPES = {"t64": (64, 2, 160), "t128": (128, 4, 384)}
VOCABULARY = 1200


def make_actor(shape: str) -> Actor:
    hidden, layers, ffn = SHAPES[shape]
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=VOCABULARY, hidden_size=hidden, intermediate_size=ffn, num_hidden_layers=layers,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=1024, tie_word_embeddings=True,
        eos_token_id=VOCABULARY - 1, pad_token_id=0, bos_token_id=None,
    )  # fmt: skip
    # The actor reads only these two from its tokenizer.
    tokenizer = SimpleNamespace(eos_token_id=VOCABULARY - 1, get_vocab=dict)
    return Actor(Qwen2ForCausalLM(config), tokenizer)


def group_rollout(actor: Actor, seed: int) -> dict[str, float]:
    """Seconds of 16 prompts x 8 copies, 8 turns of 8 response and 12 reply tokens, then one scoring."""
    rng = np.random.default_rng(seed)
    prompts = [rng.integers(0, 1000, int(n)).tolist() for n in rng.integers(100, 140, 16)]
    generator = torch.Generator().manual_seed(seed)
    start = time.perf_counter()
    session = actor.session(prompts, 8, capacity=320)
    prefilled = time.perf_counter()
    rows = list(range(128))
    sequences = [list(p) for p in prompts for _ in range(8)]
    spans: list[list[tuple[int, int]]] = [[] for _ in rows]
    for _ in range(8):
        for row, r in zip(
            rows, session.generate(rows, max_new_tokens=8, temperature=1.0, generator=generator), strict=True
        ):
            spans[row].append((len(sequences[row]), len(sequences[row]) + len(r.tokens)))
            sequences[row] += r.tokens.tolist()
        replies = [rng.integers(0, 1000, int(n)).tolist() for n in rng.integers(9, 16, 128)]
        session.extend(rows, replies)
        for row, reply in zip(rows, replies, strict=True):
            sequences[row] += reply
    decoded = time.perf_counter()
    arrays = [np.array(s) for s in sequences]
    with torch.no_grad():
        for part in buckets([len(a) for a in arrays], 8192):
            score(actor, [arrays[i] for i in part], [spans[i] for i in part], layer=1)
    scored = time.perf_counter()
    return {"prefill": prefilled - start, "decode": decoded - prefilled, "score": scored - decoded}


def race(actor: Actor, batch: int, n: int = 32) -> tuple[float, float]:
    """Seconds for n greedy tokens after a 120-token prompt: the session, and generate."""
    ids = torch.randint(0, 1000, (batch, 120), generator=torch.Generator().manual_seed(1))
    ours, theirs = [], []
    for _ in range(4):
        start = time.perf_counter()
        session = actor.session(ids.tolist(), capacity=160)
        found = session.generate(
            list(range(batch)), max_new_tokens=n, temperature=0.0, generator=torch.Generator()
        )
        ours.append(time.perf_counter() - start)
        start = time.perf_counter()
        expected: Any = actor.model.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=n
        )
        theirs.append(time.perf_counter() - start)
        for row, response in enumerate(found):
            length = len(response.tokens)
            if expected[row, 120 : 120 + length].tolist() != response.tokens.tolist():
                raise SystemExit(f"row {row} differs from generate")
    return min(ours[1:]), min(theirs[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "decode.json")
    out = parser.parse_args().out
    about = {
        "machine": f"{platform.machine()}, {torch.get_num_threads()} thread(s)",
        "versions": {"python": platform.python_version(), "torch": torch.__version__,
                     "transformers": transformers.__version__},
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        "command": " ".join(["python", *sys.argv]),
    }  # fmt: skip
    results = []
    for shape in SHAPES:
        actor = make_actor(shape)
        runs = [group_rollout(actor, seed) for seed in range(3)]
        for part in runs[0]:
            value = min(run[part] for run in runs)
            results.append(
                {"figure": f"{shape} {part}, 128 rows x 8 turns", "unit": "s", "value": value} | about
            )
        for batch in (1, 16, 64):
            ours, theirs = race(actor, batch)
            results.append(
                {"figure": f"{shape} 32 greedy tokens, batch {batch}", "unit": "s", "value": ours,
                 "peer": {"generate": theirs}, "ratio": theirs / ours} | about
            )  # fmt: skip
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(results, indent=1) + "\n")
    for r in results:
        print(f"{r['figure']:45s} {r['value']:.3f} {r['unit']}  {r.get('ratio', float('nan')):.2f}x")


if __name__ == "__main__":
    main()
