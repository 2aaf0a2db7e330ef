"""Environments from hell, in the trainer's process and in processes of their own."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from harness import Case

TINY = (
    "rollout.tasks=2", "rollout.group_size=2", "env.max_steps=3", "run.iterations=1", "run.validate_every=1",
    "actor.threads=1", "prompt.max_new_tokens=6", "actor.folder=textcraft-small",
)  # fmt: skip

BASE = """
import sys, os, time, signal
import numpy as np
from bipace.envs.base import Turn

class World:
    def __init__(self): self.n = 0
    def reset(self, task): self.n = 0; {reset}; return Turn(f"task {{task}}")
    def step(self, action): self.n += 1; {step}; return Turn(f"you did {{self.n}}", reward=float(self.n == 2), terminated=self.n == 2, won=self.n == 2)
    def copy(self): return self

class Suite:
    name, max_steps, instructions = "hell", {max_steps}, "do"
    splits = {splits}
    def make(self): {make}; return World()
    def family(self, task): {family}; return "f"
    def expert(self, task): {expert}; return ("a", "b")
"""
WHOLE = {
    "reset": "pass", "step": "pass", "make": "pass", "family": "pass", "expert": "pass", "max_steps": "3",
    "splits": '{"train": ("a", "b", "c"), "p-panel": ("d", "e")}',
}  # fmt: skip

SPLITS = ("{}", "None", "[]", "1", '{"train": ()}', '{"train": ("a", "b"), "p-panel": ()}', '{"train": ("a",), "p-panel": ("b",)}',
          '{"train": None, "p-panel": ("a",)}', '{"train": (1, 2, 3), "p-panel": (4, 5)}', '{1: ("a", "b"), "p-panel": ("c",)}',
          '{"train": "abc", "p-panel": "de"}')  # fmt: skip
RAISES = ("raise KeyError('x')", "raise SystemExit(7)", "1 / 0", "assert False", "raise ValueError('\\ud800')",
          "raise Exception(*range(3))", "raise RecursionError", "raise MemoryError", "raise StopIteration",
          "raise type('E', (Exception,), {'__str__': lambda s: 1 / 0})()")  # fmt: skip
ANSWERS = (
    "None", "'text'", "Turn(None)", "Turn(b'x')", "Turn(7)", "Turn('x', reward=None)", "Turn('x', reward='1')",
    "Turn('x', reward=float('nan'))", "Turn('x', reward=float('inf'))", "Turn('x', reward=True)", "Turn('x', reward=1j)",
    "Turn('x', won=None)", "Turn('x', won=1)", "Turn('x', won='yes')", "Turn('x', terminated=None)", "Turn('x', valid=0)",
    "Turn('x', admissible=None)", "Turn('x', admissible=(1, 2))", "Turn('x', admissible='abc')", "Turn('x', executed=3)",
    "Turn('x', reward=np.array([1, 2]))", "(Turn('x'), 1)", "Turn", "{}",
)  # fmt: skip
GOOD_ANSWERS = (
    "Turn('x', reward=np.float32(1), terminated=np.bool_(True), won=np.bool_(True))", "Turn('\\ud800 half', terminated=True)",
    "Turn('x', admissible=['a', 'b'])", "Turn('', terminated=True)", "Turn('\\x00\\x1b[31m', terminated=True)",
    "Turn('<|im_end|><|im_start|>', terminated=True)", "Turn('x' * 200_000)", "Turn('x', reward=10**30)",
    "Turn('x', reward=1e300, terminated=True, won=True)", "Turn('\\u202e\\U0001f600' * 50)",
)  # fmt: skip


def cases() -> Iterator[Case]:
    for isolated in (False, True):
        for part in ("reset", "step", "make"):
            for raised in RAISES:
                yield world(
                    f"{part}: {raised}",
                    isolated,
                    (3, 4),
                    "aborted by the environment|memory",
                    **{part: raised},
                )
        for answer in ANSWERS:
            yield world(f"step returns {answer}", isolated, (3,), "aborted", step=f"return {answer}")
            yield world(f"reset returns {answer}", isolated, (3,), "aborted", reset=f"return {answer}")
        for answer in GOOD_ANSWERS:
            yield world(f"step returns {answer}", isolated, (0, 3), step=f"return {answer}")
    for splits in SPLITS:
        yield world(f"splits = {splits}", False, (0, 2), splits=splits)
    for steps in ("0", "-1", "None", "'x'", "1.5", "True", "10**9"):
        yield world(f"max_steps = {steps}", False, (0, 2), max_steps=steps, use_own_horizon=True)
    for raised in RAISES[:4]:
        yield world(f"family: {raised}", False, (2,), "family", family=raised)
    yield world("hangs", True, (3,), "aborted", step="time.sleep(99)", seconds=0.3)
    yield world("dies", True, (3,), "aborted", step="os._exit(3)")
    yield world("kills itself", True, (3,), "aborted", step="os.kill(os.getpid(), signal.SIGSEGV)")
    yield world("prints", False, (0,), step="print('x' * 1000); sys.stdout.flush()")
    yield world("prints", True, (0,), step="print('x' * 1000); sys.stdout.flush()")
    yield world("closes stdout", True, (0,), step="os.close(1)")
    yield from _imitations()


def _imitations() -> Iterator[Case]:
    words = ("--steps", "2", "--every", "2", "--target", "2", "--seed", "0")
    for name, parts, status in (
        ("few episodes", {}, (0,)),
        ("no plan", {"expert": "return ()"}, (2,)),
        ("plan too long", {"expert": "return ('a',) * 99"}, (2,)),
        ("plan raises", {"expert": "raise KeyError('x')"}, (2, 70)),
        ("plan is numbers", {"expert": "return (1, 2)"}, (2, 70)),
    ):
        yield Case(
            f"imitate/{name}", ("imitate", "new", "--suite", "hell.py:Suite", *words), status, prepare=partial(_write, parts)
        )  # fmt: skip


def world(
    name: str, isolated: bool, status: tuple[int, ...], says: str = "", *, seconds: float = 20.0,
    use_own_horizon: bool = False, **parts: str,
) -> Case:  # fmt: skip
    words = [w for w in TINY if not (use_own_horizon and w.startswith("env.max_steps"))]
    words += [f"env.step_seconds={seconds}"] if isolated else []
    kind = "isolated" if isolated else "world"
    return Case(
        f"{kind}/{name}", ("train", "env.suite=hell.py:Suite", *words, "--out", "run"), status, says,
        prepare=partial(_write, parts),
    )  # fmt: skip


def _write(parts: dict[str, str], folder: Path) -> None:
    (folder / "hell.py").write_text(BASE.format(**{**WHOLE, **parts}), encoding="utf-8")
