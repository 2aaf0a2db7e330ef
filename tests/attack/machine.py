"""A disk that is full at any write, folders without permission, absurd sizes, and runs that break down."""

from __future__ import annotations

import os
import resource
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from folders import LOGS, MORE, a_run
from harness import Case
from worlds import TINY

LIMITS = (0, 1, 100, 1000, 4000, 20_000, 100_000, 300_000, 620_000, 1_000_000)
FULL = "no space left on the disk"
IMITATE = ("imitate", "new", "--steps", "1", "--every", "1", "--target", "2")


def cases() -> Iterator[Case]:
    for size in LIMITS:
        limit = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (size, size))
        yield Case(f"full/train {size}", ("train", *_short(), "--out", "run"), (0, 4), before=_quietly(limit))
        yield Case(f"full/resume {size}", ("train", "--resume", "run", *MORE), (0, 4), before=_quietly(limit),
                   prepare=_copy, may_change=LOGS, after=_goes_on)  # fmt: skip
        yield Case(
            f"full/credit {size}",
            ("credit", "world:grid", "--groups", "2", "--recipe", "grpo"),
            (0, 4),
            before=_quietly(limit),
        )
        yield Case(
            f"full/report {size}",
            ("report", "run", "--out", "page"),
            (0, 4),
            before=_quietly(limit),
            prepare=_copy,
        )
        yield Case(
            f"full/analyze {size}",
            ("analyze", "f.jsonl", "--out", "x.html"),
            (0, 4),
            before=_quietly(limit),
            prepare=_episodes,
        )
    nobody = _become_nobody
    if os.getuid() == 0:
        for name, words in {
            "train": ("train", *_short(), "--out", "run"), "demo": ("demo", "--out", "run"), "credit": ("credit", "world:grid"),
            "imitate": IMITATE, "report": ("report", "run"), "analyze": ("analyze", "f.jsonl"),
            "eval": ("eval", "textcraft-small", "--out", "x.jsonl"),
        }.items():  # fmt: skip
            yield Case(f"permission/{name}", words, (2, 4), before=nobody, prepare=_episodes)
        yield Case(
            "permission/resume",
            ("train", "--resume", "run", *MORE),
            (4,),
            "permission",
            before=nobody,
            prepare=_copy,
        )
    for setting, status in (
        ("update.lr=1e30", (0, 3)), ("update.lr=1e300", (0, 2, 3)), ("env.reward_scale=1e300", (0, 2, 3)), ("credit.w=1e300", (0, 2, 3)),
        ("update.grad_clip=1e300", (0, 2, 3)), ("credit.eps=0", (0, 2)), ("credit.eps=2", (0, 2)), ("rollout.temperature=1e-30", (0, 2, 3)),
        ("rollout.temperature=1e30", (0, 2, 3)), ("actor.threads=100000", (0,)), ("prompt.max_tokens=16", (0, 2, 3)),
        ("prompt.max_new_tokens=5000", (0, 2, 3)), ("rollout.group_size=1", (0, 2)), ("features.layer=99", (2,)), ("features.layer=nan", (2,)),
        ("update.minibatches=1000", (0,)), ("update.micro_tokens=1", (0,)), ("rollout.parallel=1", (0,)), ("run.seed=10000000000000000000000", (0, 2)),
    ):  # fmt: skip
        yield Case(f"size/{setting}", ("train", *_short(), setting, "--out", "run"), status)


def _short() -> tuple[str, ...]:
    return (*TINY, "env.panel=depth3-panel", "env.held_out=[]")


def _copy(folder: Path) -> None:
    shutil.copytree(a_run(), folder / "run", symlinks=True)


def _episodes(folder: Path) -> None:
    step = '{"observation": "x", "action": "go", "response": "go", "valid": true}'
    line = '{"task": "a", "member": 0, "reward": 1.0, "won": true, "steps": [' + step + "]}\n"
    (folder / "f.jsonl").write_text(line * 4)


def _goes_on(folder: Path) -> str:
    """Whatever happened, the last checkpoint is whole."""
    from bipace.train.checkpoints import find_last, is_whole

    last = find_last(folder / "run")
    return "" if last is not None and is_whole(last) else "no whole checkpoint is left"


def _quietly(limit: Callable[[], None]) -> Callable[[], None]:
    """The limit holds for files in the case's folder: what the command says goes through a pipe, as on a terminal."""

    def before() -> None:
        ours, theirs = os.pipe()
        if os.fork() == 0:
            os.close(theirs)
            while part := os.read(ours, 65536):
                os.write(1, part)
            os._exit(0)
        os.close(ours)
        os.dup2(theirs, 1)
        os.dup2(theirs, 2)
        import sys

        sys.stdout = os.fdopen(os.dup(1), "w", encoding="utf-8", errors="backslashreplace")
        sys.stderr = os.fdopen(os.dup(2), "w", encoding="utf-8", errors="backslashreplace", buffering=1)
        os.close(theirs)
        limit()

    return before


def _become_nobody() -> None:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
    os.environ["HOME"] = "/nonexistent"
