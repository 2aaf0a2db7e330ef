"""Settings and words that make no sense, through the real command line."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path

from harness import Case

from bipace.train.config import Config, describe_config

UGLY = (
    "nan", "inf", "-inf", "1e400", "-1", "0", "1e-300", "1" + "0" * 40, "0.5", "true", '""', '" "', "null", "[]", "[1, 2]",
    '["x"]', "{}", "{a = 1}", "näh\u202e", "a\\x00b", "x" * 5000, "../../etc", "1979-05-27", "--", "=",
)  # fmt: skip
NOT_FINITE = ("nan", "inf", "-inf", "1e400")


def cases() -> Iterator[Case]:
    yield from _keys()
    yield from _words()
    yield from _toml()
    yield from _studies()


def _keys() -> Iterator[Case]:
    """Every key with every ugly value: taken or refused, and a number that is not finite is always refused."""
    for key, value, _ in describe_config(Config()):
        numeric = value.replace(".", "").replace("e-", "").isdigit()
        for ugly in UGLY:
            status = (2,) if numeric and ugly in NOT_FINITE else (0, 2)
            yield Case(f"settings/{key}={ugly[:30]}", ("config", f"{key}={ugly}"), status)


def _words() -> Iterator[Case]:
    for words in (
        ("trian",), ("train", "--no-such"), ("train", "estimator"), ("train", "=1"), ("train", "a.b.c.d=1"), ("credit",),
        ("train", "env=1"), ("train", "env.suite.x=1"), ("eval",), ("eval", ""), ("eval", "\x01"), ("report",),
        ("report", "nowhere"), ("study", "nowhere.toml"), ("analyze",), ("analyze", "nowhere"), ("play", "nowhere"),
        ("play", "textcraft", "--task", "no such task"), ("play", "textcraft", "--split", "nowhere"), ("imitate",),
        ("imitate", "x", "--size", "huge"), ("imitate", "x", "--batch", "0"), ("imitate", "x", "--suite", ":"),
        ("credit", "world:"), ("credit", "world:nowhere"), ("credit", "nowhere"), ("credit", "textcraft-small", "--recipe", "x"),
        ("credit", "world:grid", "--recipe", "bipace eps=x"), ("credit", "world:grid", "--groups", "0"),
        ("train", "--resume"), ("train", "--resume", "a", "b"), ("train", "actor.folder=nowhere"), ("models", "fetch", "x"),
        ("models", "merge", "nowhere", "out"), ("train", "env.suite=nowhere.py:x"), ("train", "env.suite=json:loads"),
        ("train", "env.suite=os:path"), ("train", "estimator=nowhere.py:x"), ("train", "estimator=os:path"),
        ("train", "-c", "."), ("train", "-c", "/dev/null/x"), ("config", "-c", "."), ("train", "actor.device=cuda:99"),
        ("train", "actor.device=tpu"), ("train", "actor.device="), ("train", "env.split=nowhere"), ("train", "env.panel=x"),
        ("train", "rollout.tasks=100000"), ("train", "run.loggers=['wandbx']"), ("train", "x" * 5000 + "=1"),
        ("eval", "textcraft-small", "--panel", "nowhere"), ("eval", "textcraft-small", "--out", "."),
        ("analyze", "nowhere", "--fail-on", "x"), ("analyze", "nowhere", "--map", "x"), ("analyze", "nowhere", "--layer", "x"),
    ):  # fmt: skip
        yield Case(f"words/{' '.join(words)[:60]}", words, (2,))


TOML = (
    "", "x", "[", "[env", "a = 1", "env = 1", "[env]\nsuite = 1", "[env]\nsuite = []", "[credit]\neps = 'x'", "[run]\nseed = -1",
    "[run]\nseed = 1.5", "[run]\nseed = true", "[[env]]\nx = 1", "estimator = 7", "[env]\na = 1\na = 2", "\x00", "[update]\nlr = nan",
    "[update]\nlr = inf", "[credit]\nw = nan", "[credit]\neps = inf", "estimator = 'nope'", "[a.b.c]\nd = 1", "é = 1", "'' = 1",
)  # fmt: skip


def _toml() -> Iterator[Case]:
    chance = random.Random(0)
    texts = [*TOML, *("".join(chance.choice("[]=\"'\n.{},#aé10 ") for _ in range(40)) for _ in range(150))]
    for number, text in enumerate(texts):
        yield Case(
            f"toml/{number} {text[:30]!r}", ("config", "-c", "x.toml"), (0, 2), prepare=_file("x.toml", text)
        )
    for number, data in enumerate(
        (b"\xff\xfe\x00", bytes(range(256)), b"[" * 100_000, b"a=" + b"[" * 100_000)
    ):
        yield Case(f"toml/bytes {number}", ("config", "-c", "x.toml"), (2,), prepare=_file("x.toml", data))


def _studies() -> Iterator[Case]:
    good = {"seeds": [0], "methods": {"a": {"estimator": "grpo"}}}
    for key in (
        "name",
        "seeds",
        "base",
        "config",
        "methods",
        "environments",
        "baseline",
        "thresholds",
        "nonsense",
    ):
        for ugly in (
            None,
            -1,
            "",
            "../x",
            [],
            [[]],
            {},
            {"a": 1},
            {"a": {"estimator": 1}},
            [0, 0],
            [1.5],
            True,
            "é/",
        ):
            tree = {**good, key: ugly}
            text = "".join(f"{k} = {_toml_value(v)}\n" for k, v in tree.items() if v is not None)
            words = ("study", "s.toml", "run.no_such_key=1")  # never runs: what comes first is found first
            yield Case(f"study/{key}={ugly}", words, (2,), prepare=_file("s.toml", text))


def _toml_value(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(str(k))} = {_toml_value(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml_value, value)) + "]"
    return json.dumps(value)


def _file(name: str, content: str | bytes):
    def prepare(folder: Path) -> None:
        data = content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass")
        (folder / name).write_bytes(data)

    return prepare
