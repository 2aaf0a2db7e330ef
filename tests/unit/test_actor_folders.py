"""An actor's folder: saved whole or not at all, and refused in one sentence where a part is missing."""

import json
import shutil

import pytest

torch = pytest.importorskip("torch", reason="needs the train extra")

from safetensors.torch import load_file, save_file

from bipace.policies.hf import Actor
from bipace.train.actors import open_actor
from bipace.train.config import ConfigError


def test_a_save_that_fails_at_the_last_moment_leaves_the_old_folder(tiny_actor_folder, tmp_path):
    class Vanishing:
        """A tokenizer whose folder is gone when it is to be renamed."""

        def save_pretrained(self, folder):
            shutil.rmtree(folder)

    folder = shutil.copytree(tiny_actor_folder, tmp_path / "actor")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    broken = Actor.load(folder)
    broken.tokenizer = Vanishing()
    with pytest.raises(FileNotFoundError):
        broken.save(folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert [path.name for path in tmp_path.iterdir()] == ["actor"]


@pytest.mark.parametrize("kind", ["tiny_actor_folder", "tiny_llama_folder"])
def test_saved_folder_gives_identical_logits(kind, request, tmp_path):
    actor = Actor.load(request.getfixturevalue(kind))
    for _ in range(2):
        actor.save(tmp_path / "out")
    again = Actor.load(tmp_path / "out")
    ids = torch.arange(40)[None]
    with torch.no_grad():
        assert torch.equal(actor.model(ids).logits, again.model(ids).logits)
    assert again.tokenizer.chat_template == actor.tokenizer.chat_template
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize(
    ("remove", "message"),
    [
        (["config.json"], "no config.json"),
        (["model.safetensors"], "no weights"),
        (["tokenizer.json"], "no tokenizer"),
        (["chat_template.jinja"], "no chat template"),
    ],
)
def test_incomplete_folder_is_one_clear_error(tiny_actor_folder, tmp_path, remove, message):
    folder = shutil.copytree(tiny_actor_folder, tmp_path / "copy")
    for name in remove:
        (folder / name).unlink()
    assert "chat_template" not in json.loads((folder / "tokenizer_config.json").read_text())
    with pytest.raises((FileNotFoundError, ValueError), match=message):
        Actor.load(folder)


def test_missing_folder_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="does not exist"):
        Actor.load(tmp_path / "nowhere")


@pytest.mark.parametrize("load", [Actor.load, open_actor])
def test_weights_that_the_file_lacks_are_not_made_up(load, tiny_actor_folder, tmp_path):
    folder = shutil.copytree(tiny_actor_folder, tmp_path / "copy")
    weights = load_file(folder / "model.safetensors")
    gone = sorted(name for name in weights if "layers.1." in name)[:2]
    assert len(gone) == 2
    save_file(
        {n: w for n, w in weights.items() if n not in gone}, folder / "model.safetensors", {"format": "pt"}
    )
    with pytest.raises((ValueError, ConfigError), match="2 weights are missing") as refused:
        load(folder)
    assert str(folder) in str(refused.value)
    assert gone[0] in str(refused.value)
    assert "\n" not in str(refused.value)


def test_tied_weights_may_be_left_out(tiny_actor_folder):
    assert "lm_head.weight" not in load_file(tiny_actor_folder / "model.safetensors")
    Actor.load(tiny_actor_folder)
