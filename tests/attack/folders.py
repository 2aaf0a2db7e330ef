"""Folders from hell: run folders damaged, copied, shared and mixed with a user's own files."""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path

from harness import Case, run
from worlds import TINY

DAMAGES: dict[str, Callable[[bytes], bytes | None]] = {
    "gone": lambda _: None,
    "empty": lambda _: b"",
    "half": lambda data: data[: len(data) // 2],
    "zeros": lambda data: bytes(len(data)),
    "noise": lambda data: bytes((7 * i + b) % 256 for i, b in enumerate(data[:5000])),
    "other JSON": lambda _: b'[1, {"a": null}]\n',
    "nested": lambda _: b"[" * 100_000,
    "one byte": lambda data: data[: len(data) // 2] + b"\xff" + data[len(data) // 2 + 1 :],
}
LOGS = r"\.jsonl$|summary\.json|curve\.png|config\.(json|toml)|provenance\.json|\.lock|last|best|checkpoints|validation"
LOCK = r"\.lock$"
MORE = ("run.iterations=2",)


def cases() -> Iterator[Case]:
    for name in (
        "config.json",
        "provenance.json",
        "metrics.jsonl",
        "last/trainer_state.json",
        "last/optimizer.safetensors",
        "last/actor/model.safetensors",
        "last/actor/config.json",
        "last/actor/tokenizer.json",
        "last/actor/tokenizer_config.json",
        "last/actor/chat_template.jinja",
        "last/files.json",
        "summary.json",
    ):
        for damage in DAMAGES:
            prepare = partial(_damaged, name, damage)
            yield Case(f"resume/{name} {damage}", ("train", "--resume", "run", *MORE), (0, 2), prepare=prepare,
                       may_change=LOGS)  # fmt: skip
        for damage in ("gone", "empty", "half", "noise"):
            prepare = partial(_damaged, name, damage)
            yield Case(
                f"eval/{name} {damage}", ("eval", "run", "--panel", "train-panel"), (0, 2), prepare=prepare
            )
            yield Case(f"report/{name} {damage}", ("report", "run", "--out", "page"), (0, 2), prepare=prepare)
    yield from _copies()
    yield from _mine()
    yield from _shared()


def _copies() -> Iterator[Case]:
    def without(*names: str) -> Callable[[Path], None]:
        return lambda folder: _without(names, folder)

    def followed(folder: Path) -> None:
        shutil.copytree(a_run(), folder / "run", symlinks=False)

    words = ("train", "--resume", "run", *MORE)
    gone = r"run/(last|best|checkpoints/)"
    kept = LOGS
    yield Case("copy/links followed", words, (0,), prepare=followed, may_change=kept)
    yield Case("copy/no links", words, (0,), prepare=without("last", "best"), may_change=kept)
    yield Case("copy/no checkpoints", words, (2,), "gone", prepare=without("checkpoints"), may_change=LOCK)
    yield Case("copy/neither", words, (2,), "no whole checkpoint", prepare=without("checkpoints", "last", "best"),
               may_change=LOCK)  # fmt: skip
    yield Case(
        "copy/no config", words, (2,), "no run to resume", prepare=without("config.json"), may_change=gone
    )


def _mine() -> Iterator[Case]:
    for name in (
        "notes.txt",
        "checkpoints/mine/a.txt",
        "checkpoints/iteration-000000-old/a",
        "checkpoints/iteration-000099/a",
        "checkpoints/.building-mine/a",
        "validation/iteration-foo.txt",
        "validation/mine.jsonl",
        "report/mine.md",
    ):
        prepare = partial(_with, name)
        resume = ("train", "--resume", "run", "run.iterations=3")
        yield Case(f"mine/{name} and resume", resume, (0,), prepare=prepare, may_change=LOGS.replace("|checkpoints|validation", "")
                   + r"|checkpoints/iteration-00000[012]/|validation/iteration-00000\d\.", after=partial(_there, name))  # fmt: skip
        yield Case(f"mine/{name} and demo", ("demo", "--out", "run"), (2,), prepare=prepare, may_change=LOCK)
        yield Case(
            f"mine/{name} and a new run",
            ("train", *TINY, "--out", "run"),
            (2,),
            "already holds",
            prepare=prepare,
        )
    for name, text in (("config.toml", "mine"), ("summary.json", "mine"), ("config.json", "{}"), ("x", "")):

        def prepare_one(folder: Path, name: str = name, text: str = text) -> None:
            (folder / "p").mkdir()
            (folder / "p" / name).write_text(text)
            (folder / "p" / "thesis.tex").write_text("years of work")

        yield Case(f"demo/over {name}", ("demo", "--out", "p"), (2,), prepare=prepare_one)
        yield Case(f"new/over {name}", ("train", *TINY, "--out", "p"), (2,), prepare=prepare_one)
        yield Case(f"resume/over {name}", ("train", "--resume", "p"), (2,), prepare=prepare_one)
        yield Case(f"imitate/over {name}", ("imitate", "p"), (2,), "not empty", prepare=prepare_one)

    def a_file(folder: Path) -> None:
        (folder / "p").write_text("mine")

    for words in (
        ("demo", "--out", "p"),
        ("train", "--out", "p"),
        ("train", "--out", "p/q"),
        ("train", "--resume", "p"),
        ("imitate", "p"),
        ("credit", "world:grid", "--out", "p"),
        ("eval", "textcraft-small", "--out", "p"),
        ("eval", "textcraft-small", "--out", "p/q"),
        ("analyze", "p", "--out", "p"),
        ("report", "p"),
        ("models", "merge", "textcraft-small", "p"),
    ):
        yield Case(f"file/{' '.join(words)}", words, (2, 4), prepare=a_file)


def _shared() -> Iterator[Case]:
    """Somebody else trains in the folder."""

    def hold(folder: Path) -> None:
        shutil.copytree(a_run(), folder / "run", symlinks=True)

    def before() -> None:
        file = Path("run/.lock").open("a+")  # noqa: SIM115  (held by the child)
        if os.fork() == 0:  # another process, which keeps the lock for as long as this one lives
            fcntl.flock(file, fcntl.LOCK_EX)
            Path("ready").touch()
            parent = os.getppid()
            while os.getppid() == parent:
                os.sched_yield()
            os._exit(0)
        file.close()
        while not Path("ready").exists():
            os.sched_yield()

    yield Case(
        "shared/resume",
        ("train", "--resume", "run", *MORE),
        (2,),
        "is writing into it",
        prepare=hold,
        before=before,
    )


@cache
def a_run() -> Path:
    """A run of one iteration with the shipped small actor, made once."""
    place = Path(tempfile.mkdtemp(prefix="attack-run-"))
    atexit.register(shutil.rmtree, place)

    def keep(folder: Path) -> str:
        shutil.copytree(folder / "run", place / "run", symlinks=True)
        return ""

    settings = tuple(w for w in TINY if not w.startswith("run.validate"))
    words = (
        "train",
        *settings,
        "run.validate_every=1",
        "run.save_every=1",
        "env.panel=depth4-panel",
        "env.held_out=[]",
    )
    words = (*(w for w in words if "env.panel" not in w), "env.panel=depth3-panel", "--out", "run")
    wrong = run(Case("a run to damage", words, (0,), after=keep))
    if wrong:
        raise RuntimeError(f"the run to damage could not be made: {wrong}")
    return place / "run"


def _damaged(name: str, damage: str, folder: Path) -> None:
    shutil.copytree(a_run(), folder / "run", symlinks=True)
    path = folder / "run" / name
    if not path.exists():
        return
    data = DAMAGES[damage](path.read_bytes())
    if data is None:
        path.unlink()
    else:
        path.write_bytes(data)


def _without(names: tuple[str, ...], folder: Path) -> None:
    shutil.copytree(a_run(), folder / "run", symlinks=True)
    for name in names:
        path = folder / "run" / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def _with(name: str, folder: Path) -> None:
    shutil.copytree(a_run(), folder / "run", symlinks=True)
    path = folder / "run" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("mine")


def _there(name: str, folder: Path) -> str:
    path = folder / "run" / name
    return "" if path.is_file() and path.read_text() == "mine" else f"the user's {name} is gone"
