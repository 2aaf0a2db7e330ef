"""Files from hell: actors whose files are damaged, and trajectory files that mean nothing."""

from __future__ import annotations

import gzip
import json
import random
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from folders import DAMAGES
from harness import Case

from bipace.train.places import actor_folder

SMALL = ("env.max_steps=2", "actor.threads=1", "rollout.parallel=64")


def cases() -> Iterator[Case]:
    names = [path.name for path in sorted(actor_folder("textcraft-small").iterdir())]
    for name in names:
        for damage in DAMAGES:
            words = ("eval", "actor", "--panel", "depth4-panel", *SMALL)
            # A damaged weight may be a weight like any other, and what is no model file is not read.
            yield Case(f"actor/{name} {damage}", words, (0, 2), prepare=partial(_actor, name, damage))
    for value in (float("nan"), float("inf")):
        yield Case(f"actor/weights {value}", ("eval", "actor", "--panel", "depth4-panel", *SMALL), (2,), "not all finite",
                   prepare=partial(_weights, value))  # fmt: skip
    yield from _trajectories()


GOOD = [
    {
        "task": "a",
        "reward": 1.0,
        "won": True,
        "steps": [{"observation": "x", "action": "go", "response": "go"}],
    },
    {"input": "question", "output": "answer", "score": 1.0, "step": 3},
    {
        "prompt": [{"role": "user", "content": "hi"}],
        "completion": [{"role": "assistant", "content": "ho"}],
        "reward": 0.5,
    },
    {"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}], "reward": 1},
    {
        "task_id": 1,
        "trial": 0,
        "reward": 0.0,
        "traj": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}],
    },
]
UGLY = (
    None,
    "",
    "x",
    -1,
    10**40,
    1e308,
    True,
    [],
    {},
    [[]],
    {"a": {"b": []}},
    "\ud800",
    "\x00",
    [None],
    "é" * 500,
    [1, "a"],
)


def _trajectories() -> Iterator[Case]:
    for number in range(600):
        chance = random.Random(number)
        lines = [
            _mutated(json.loads(json.dumps(chance.choice(GOOD))), chance) for _ in range(chance.randint(1, 6))
        ]
        text = "\n".join(json.dumps(line) for line in lines)
        if chance.random() < 0.2:
            cut = chance.randrange(len(text))
            text = (
                text[:cut]
                + chance.choice(("", "\x00", "}", '"', "\n\n", "[" * 500))
                + text[cut + chance.randrange(3) :]
            )
        yield Case(
            f"analyze/fuzz {number}",
            ("analyze", "f.jsonl", "--json"),
            (0, 1, 2),
            prepare=partial(_put, "f.jsonl", text.encode()),
        )
    good = ("\n".join(map(json.dumps, [GOOD[0]] * 4))).encode()
    for name, data in {
        "empty.jsonl": b"", "nested.json": b"[" * 100_000, "nested.jsonl": b'{"a":' * 50_000, "noise.jsonl": bytes(range(256)) * 9,
        "half.jsonl.gz": gzip.compress(good)[:-9], "noise.jsonl.gz": b"\x1f\x8b" + b"x" * 99, "x.parquet": b"PAR1" + b"x" * 99 + b"PAR1",
        "noise.zst": b"\x28\xb5\x2f\xfd" + b"x" * 50, "bom.jsonl": b"\xef\xbb\xbf" + good, "utf16.jsonl": good.decode().encode("utf-16"),
        "long.jsonl": b'{"task": "' + b"a" * 3_000_000 + b'"}', "numbers.json": b"[1, 2, 3]", "null.json": b"null", "list.json": b"[[]]",
    }.items():  # fmt: skip
        yield Case(
            f"analyze/{name}", ("analyze", name, "--json"), (0, 1, 2), prepare=partial(_put, name, data)
        )
    yield Case("analyze/over its input", ("analyze", "f.jsonl", "--out", "f.jsonl"), (2,), "one of the inputs",
               prepare=partial(_put, "f.jsonl", good))  # fmt: skip
    yield Case("analyze/over a thesis", ("analyze", "f.jsonl", "--out", "thesis.html"), (2,), "not written by",
               prepare=lambda folder: (_put("f.jsonl", good, folder), _put("thesis.html", b"mine", folder)))  # fmt: skip
    for out in ("nodir/x.jsonl", "x.jsonl"):
        yield Case(
            f"eval/--out {out}",
            ("eval", "textcraft-small", "--panel", "depth4-panel", *SMALL, "--out", out),
            (0,),
        )
    yield Case("eval/over a thesis", ("eval", "textcraft-small", "--out", "thesis"), (2,), "not written by",
               prepare=partial(_put, "thesis", b"mine"))  # fmt: skip


def _mutated(tree: object, chance: random.Random) -> object:
    """One place of the tree replaced, removed or doubled."""
    if isinstance(tree, dict) and tree and chance.random() < 0.85:
        key = chance.choice(list(tree))
        kind = chance.random()
        if kind < 0.15:
            del tree[key]
        elif kind < 0.25:
            tree[f"{key}_"] = tree.pop(key)
        else:
            tree[key] = _mutated(tree[key], chance)
        return tree
    if isinstance(tree, list) and tree and chance.random() < 0.8:
        place = chance.randrange(len(tree))
        tree[place] = _mutated(tree[place], chance)
        return tree
    return chance.choice(UGLY)


def _actor(name: str, damage: str, folder: Path) -> None:
    shutil.copytree(actor_folder("textcraft-small"), folder / "actor")
    path = folder / "actor" / name
    data = DAMAGES[damage](path.read_bytes())
    if data is None:
        path.unlink()
    else:
        path.write_bytes(data)


def _weights(value: float, folder: Path) -> None:
    from safetensors.torch import load_file, save_file

    shutil.copytree(actor_folder("textcraft-small"), folder / "actor")
    path = folder / "actor" / "model.safetensors"
    weights = load_file(path)
    next(iter(weights.values())).view(-1)[0] = value
    save_file(weights, path, metadata={"format": "pt"})


def _put(name: str, data: bytes, folder: Path) -> None:
    (folder / name).write_bytes(data)
