"""Sample files that the repository does not hold; BIPACE_SAMPLES names the folder they are in.

Below it: `trajectories/` and `formats/`, public trajectories and other tools' files for `bipace analyze`, and
`alfworld/alfworld_SPLIT.tar.xz`, the official games. A test that needs one skips without it, and says so.
"""

from __future__ import annotations

import os
import tarfile
from pathlib import Path

import pytest

_NAMED = os.environ.get("BIPACE_SAMPLES", "")


def sample(*parts: str) -> Path:
    """The path of a sample file or folder, whether it is there or not."""
    return Path(_NAMED or "BIPACE_SAMPLES", *parts)


def needs_sample(*parts: str) -> pytest.MarkDecorator:
    """A mark that skips where the sample is absent."""
    path = sample(*parts)
    why = f"{path} is absent" if _NAMED else "BIPACE_SAMPLES names no folder of sample files"
    return pytest.mark.skipif(not (_NAMED and path.exists()), reason=f"{why}: {'/'.join(parts)} is needed")


def extract(split: str, folder: Path) -> Path:
    """Unpack a split of the official games below `folder`; the folder that holds json_2.1.1.

    Skips the test, with the reason, where its archive is absent.
    """
    archive = sample("alfworld", f"alfworld_{split}.tar.xz")
    if not (_NAMED and archive.is_file()):
        pytest.skip(f"the official ALFWorld games are not here ({archive})")
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    return folder
