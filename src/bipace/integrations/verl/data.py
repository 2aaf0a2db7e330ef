# pyright: reportMissingImports=false
# pyarrow comes with verl, which lives in an environment of its own.
"""Task lists as the Parquet files verl reads.

`python -m bipace.integrations.verl.data --suite textcraft ...`.

verl's data set holds tasks, not texts: the agent loop reads `extra_info.task` and gets every observation from
the environment itself, so the file is the same for any prompt style.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bipace.envs.base import Suite
from bipace.envs.registry import get_suite
from bipace.files import whole
from bipace.rollout.panel import panel_tasks

__all__ = ["main", "task_rows", "write_tasks"]


def task_rows(suite: Suite, tasks: Sequence[str]) -> list[dict[str, Any]]:
    """One row of verl's data set per task, with the columns its loader and its validation ask for."""
    return [
        {
            "data_source": suite.name,
            "agent_name": "bipace",
            "prompt": [{"role": "user", "content": task}],
            "ability": suite.family(task),
            "reward_model": {"style": "environment", "ground_truth": ""},
            "extra_info": {"index": index, "task": task},
        }
        for index, task in enumerate(tasks)
    ]


def write_tasks(suite: Suite, split: str, path: Path, limit: int | None = None) -> int:
    """Write the tasks of a split (or panel), in its fixed order, and return how many.

    Raises:
        ValueError: the suite has no such split, or only a part of it; limit below 1.
    """
    import pyarrow as pa
    from pyarrow import parquet

    tasks = panel_tasks(suite, split)
    if limit is not None and limit < 1:
        raise ValueError(f"limit: {limit}, expected at least 1 task")
    rows = task_rows(suite, [tasks[i] for i in range(min(len(tasks), limit or len(tasks)))])
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole(path) as temporary:
        parquet.write_table(pa.Table.from_pylist(rows), temporary)
    return len(rows)


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bipace.integrations.verl.data", description=__doc__)
    parser.add_argument(
        "--suite", required=True, help="textcraft, module:attribute or path/to/file.py:attribute"
    )
    parser.add_argument("--split", required=True, help="a split or panel of the suite")
    parser.add_argument("--out", required=True, type=Path, help="the Parquet file to write")
    parser.add_argument("--limit", type=int, help="at most this many tasks, from the front")
    given = parser.parse_args(arguments)
    count = write_tasks(get_suite(given.suite), given.split, given.out, given.limit)
    print(f"{given.out}: {count} tasks of {given.suite} {given.split}")


if __name__ == "__main__":
    main()
