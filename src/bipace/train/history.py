"""A run's logs: JSON lines, each with its iteration, cut back to a checkpoint when a run goes on.

Lines behind the checkpoint are dropped, for they are made again, the same to the bit; so is a last line that
a kill cut off. A damaged line anywhere else is no leftover of ours: the run is refused before anything is
changed.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from bipace.train.config import ConfigError
from bipace.train.files import write_text

__all__ = ["LOGS", "append_lines", "check_logs", "drop_validations", "logged", "rewind_logs"]

LOGS = ("metrics.jsonl", "rollouts.jsonl")
_RESULTS = re.compile(r"iteration-(\d{6,})\.(.+)\.jsonl")


def append_lines(path: Path, lines: Sequence[dict[str, Any]]) -> None:
    """Append JSON lines."""
    with path.open("a", encoding="utf-8", errors="backslashreplace", newline="\n") as file:
        file.writelines(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)


def logged(folder: Path) -> int:
    """The last iteration that metrics.jsonl tells of; -1 for none."""
    path = folder / "metrics.jsonl"
    if not path.is_file():
        return -1
    with path.open("rb") as file:
        return max((found for line in file if (found := _iteration(line)) is not None), default=-1)


def check_logs(folder: Path, iteration: int) -> None:
    """Refuse logs that cannot be cut back to the iteration without losing what is not made again.

    Raises:
        ConfigError: a damaged line that is not the unfinished last one; the message names file and line.
    """
    for name in LOGS:
        if (folder / name).is_file():
            _kept_bytes(folder / name, iteration)


def rewind_logs(folder: Path, iteration: int) -> None:
    """Cut the logs, and the per-task results, back to an iteration (-1: to the very beginning)."""
    for name in LOGS:
        path = folder / name
        if path.is_file():
            kept, open_end = _kept_bytes(path, iteration)
            with path.open("r+b") as file:
                file.truncate(kept)
                if open_end:  # an editor took the last line's end away
                    file.seek(0, os.SEEK_END)
                    file.write(b"\n")
    _drop_results(folder, lambda found, _panel: found > iteration)


def drop_validations(folder: Path, iteration: int, panels: Sequence[str]) -> None:
    """Take the panels' validations at an iteration out of metrics.jsonl; delete their per-task results."""
    path = folder / "metrics.jsonl"
    lines = path.read_bytes().splitlines(keepends=True) if panels and path.is_file() else []
    for i, line in enumerate(lines):
        if _iteration(line) == iteration:
            found: dict[str, Any] = json.loads(line)
            kept = {
                k: v for k, v in found.items() if not any(k.startswith(f"val/{panel}/") for panel in panels)
            }
            if len(kept) < len(found):
                if not any(key.startswith("val/") for key in kept):
                    kept.pop("timing_s/validation", None)
                lines[i] = (json.dumps(kept, ensure_ascii=False) + "\n").encode()
                write_text(path, b"".join(lines).decode())
    names = {quote(panel, safe="") for panel in panels}
    _drop_results(folder, lambda found, panel: found == iteration and panel in names)


def _drop_results(folder: Path, dropped: Callable[[int, str], bool]) -> None:
    """Delete the per-task results (`validation/iteration-N.PANEL.jsonl`) where dropped(N, PANEL) holds."""
    for path in (folder / "validation").glob("iteration-*"):
        match = _RESULTS.fullmatch(path.name)
        if match and path.is_file() and dropped(int(match[1]), match[2]):
            path.unlink()


def _kept_bytes(path: Path, iteration: int) -> tuple[int, bool]:
    """Bytes of the lines up to the iteration, and whether the last of them lacks its line end."""
    kept, open_end = 0, False
    with path.open("rb") as file:
        for number, (line, last) in enumerate(_with_last(file), 1):
            found = _iteration(line)
            if found is None and not (last and not line.endswith(b"\n")):
                raise ConfigError(
                    f"{path}: line {number} is damaged; mend it, or delete it to go on without it, and "
                    f"resume again"
                )
            if found is not None and found <= iteration:
                kept, open_end = kept + len(line), not line.endswith(b"\n")
            elif found is not None:
                break
    return kept, open_end


def _with_last(lines: Iterable[bytes]) -> Iterable[tuple[bytes, bool]]:
    """Each line, and whether it is the last."""
    before: bytes | None = None
    for line in lines:
        if before is not None:
            yield before, False
        before = line
    if before is not None:
        yield before, True


def _iteration(line: bytes) -> int | None:
    try:
        found = json.loads(line)["iteration"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return found if isinstance(found, int) else None
