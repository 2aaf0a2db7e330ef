"""The official ALFWorld games for tests: archives in a folder `shared/` beside the checkout, where there is one."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path

import pytest

HERE = Path(__file__).resolve()


def archive(split: str) -> Path:
    """The archive of a split; skips the test, with the reason, where it is absent."""
    named = os.environ.get("BIPACE_SHARED")
    bases = [Path(named)] if named else [parent / "shared" for parent in HERE.parents]
    for base in bases:
        path = base / "data" / "alfworld" / f"alfworld_{split}.tar.xz"
        if path.is_file():
            return path
    return pytest.skip(
        f"the official ALFWorld games are not here (alfworld_{split}.tar.xz under BIPACE_SHARED)"
    )


def extract(split: str, folder: Path) -> Path:
    """Unpack a split below `folder`; the folder that holds json_2.1.1."""
    with tarfile.open(archive(split)) as tar:
        tar.extractall(folder, filter="data")
    return folder
