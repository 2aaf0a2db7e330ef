"""The built wheel, bare and with each extra, in a fresh environment: that extra's commands run, the others
refuse.

`make test` does the small extras; `make wheel-test` does all and writes benchmarks/results/install.json. A
download that fails is a failure: an install that does not work is what this looks for.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import venv
import zipfile
from pathlib import Path

import pytest
from commands import EXTRAS, GPU_ONLY, LIGHT, write_inputs

ROOT = Path(__file__).parents[2]
RECORD = ROOT / "benchmarks" / "results" / "install.json"
ALL = os.environ.get("BIPACE_WHEEL") == "all"

pytestmark = pytest.mark.slow


def test_the_description_of_the_wheel_has_no_relative_link(wheel):
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("METADATA"))
        text = archive.read(name).decode()
    assert "# bipace" in text
    assert not re.findall(r"\]\((?!https?://|#)[^)]*\)", text)


@pytest.fixture(scope="session")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", folder, ROOT], check=True
    )
    (found,) = folder.glob("*.whl")
    return found


def test_every_extra_is_installed_here_or_says_why_not():
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    block = text.split("[project.optional-dependencies]")[1].split("\n[")[0]
    named = {line.split(" = [")[0] for line in block.splitlines() if " = [" in line}
    assert named - {"dev", "docs"} == (set(EXTRAS) | set(GPU_ONLY)) - {"bare"}


@pytest.mark.parametrize("extra", EXTRAS)
def test_an_extra_runs_its_commands(extra, wheel, tmp_path):
    if extra not in LIGHT and not ALL:
        pytest.skip("brings a deep-learning framework or more; `make wheel-test` installs it")
    place = tmp_path / "env"
    venv.create(place, with_pip=True, symlinks=True)
    python = place / "bin" / "python"
    empty = _megabytes(place)
    begun = time.monotonic()
    wanted = str(wheel) if extra == "bare" else f"{wheel}[{extra}]"
    # the release that requirements.lock pins: where an index offers its CPU wheel, that
    pin = tmp_path / "torch.txt"
    pin.write_text(_pinned_torch())
    install = [python, "-m", "pip", "install", "--quiet", "--prefer-binary", "--constraint", pin, wanted]
    subprocess.run(install, check=True)
    seconds = time.monotonic() - begun
    size = _megabytes(place) - empty
    work = tmp_path / "work"
    work.mkdir()
    write_inputs(work)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environment |= {"COLUMNS": "100", "WANDB_MODE": "offline", "TRACKIO_DIR": str(work / "trackio")}
    for command in EXTRAS[extra]:
        _run(python, command, work, environment)
    if ALL:
        _record(extra, size, seconds, python)


def _run(python, command, folder, environment):
    done = subprocess.run(
        [python, *command.arguments], cwd=folder, env=environment, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    shown = f"{' '.join(command.arguments)}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    assert done.returncode == command.status, shown
    assert command.says in done.stdout + done.stderr, shown
    if command.status == 2:  # refused in one sentence, and nothing was begun
        assert len(done.stderr.strip().splitlines()) == 1, shown
        assert not (folder / "runs" / "demo").exists()


def _pinned_torch() -> str:
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines()
    (line,) = (line for line in lock if line.startswith("torch=="))
    return line + "\n"


def _megabytes(folder: Path) -> float:
    files = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return sum(path.stat().st_size for path in files) / 1e6


def _record(extra, size, seconds, python):
    kept = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}
    kept.setdefault("extras", {})[extra] = {
        "megabytes": round(size, 1),
        "install_seconds": round(seconds, 1),
        "commands": [
            " ".join(command.arguments).replace("-m bipace", "bipace").replace(f"{ROOT}/", "")
            for command in EXTRAS[extra]
        ],
        "torch": _torch(python),
    }
    kept |= {"python": sys.version.split()[0], "left_out": GPU_ONLY, "command": "make wheel-test"}
    kept["extras"] = {name: kept["extras"][name] for name in EXTRAS if name in kept["extras"]}
    RECORD.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


def _torch(python) -> str | None:
    code = "import importlib.metadata as m\nprint(m.version('torch'))"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True)
    return done.stdout.strip() or None
