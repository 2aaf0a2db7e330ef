"""One run of a study in a process of its own: `python -m bipace.train.worker CONFIG FOLDER LOCK`.

Prints one JSON line per iteration. The lock keeps a second process out of the folder: a study that was killed
may have left a worker behind, which ends when it cannot report its iteration; a new one waits for that.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
import time
from pathlib import Path

from bipace.train.config import load_config
from bipace.train.failure import WRONG_INPUT, fail
from bipace.train.loop import Run, train

__all__ = ["main"]


def main(config: str, folder: str, lock: str) -> int:
    """Train or continue the run; a failure is one line on stderr and a status of `bipace.train.failure`.

    Args:
        config: the run's TOML file.
        folder: the run folder; continued where it holds a checkpoint.
        lock: a file that is locked while the run lasts.

    Returns:
        The exit status.
    """
    # Whatever an environment prints must not mix with the messages.
    messages = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(2, 1)
    with Path(lock).open("w") as held:
        if not _locked(held.fileno(), seconds=120):
            print(
                f"error: {folder}: another process trains this run; wait for it or stop it", file=sys.stderr
            )
            return WRONG_INPUT

        def tell(run: Run, metrics: dict[str, float]) -> None:
            panel = metrics.get(f"val/{run.panels.panel}/success")
            message = {
                "iteration": run.iteration,
                "success": metrics.get("episode/success_rate"),
                "panel": panel,
            }
            messages.write(json.dumps(message) + "\n")

        place = Path(folder)
        try:
            train(
                load_config(Path(config)), place, resume=(place / "config.json").is_file(), on_iteration=tell
            )
        except (Exception, KeyboardInterrupt) as error:
            return fail(error)
    return 0


def _locked(file: int, seconds: float) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.5)
        else:
            return True
    return False


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
