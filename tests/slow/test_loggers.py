"""What the trackers hold is what metrics.jsonl holds."""

import importlib.util
import json

import pytest

pytest.importorskip("torch", reason="needs the train extra")
pytestmark = pytest.mark.slow

from bipace.train.config import load_config
from bipace.train.loop import train

SMALL = (
    "rollout.tasks=2", "rollout.group_size=2", "run.iterations=2", "run.save_every=1",
    "env.panel=depth4-panel",
    "env.held_out=[]", "actor.threads=1",
)  # fmt: skip


def run(folder, logger, *overrides, resume=False):
    config = load_config(overrides=(*SMALL, f'run.loggers=["{logger}"]', *overrides))
    train(config, folder, resume=resume, on_iteration=lambda *_: None)
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def wanted(lines):
    return {
        (name, line["iteration"]): value
        for line in lines
        for name, value in line.items()
        if name != "iteration"
    }


def test_tensorboard_files_hold_every_metric_and_a_resumed_run_goes_on(tmp_path):
    pytest.importorskip("tensorboard", reason="tensorboard (the extra of that name) is absent")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run(tmp_path / "run", "tensorboard", "run.iterations=1")
    lines = run(tmp_path / "run", "tensorboard", resume=True)
    events = EventAccumulator(str(tmp_path / "run" / "tensorboard")).Reload()
    found = {(tag, e.step): e.value for tag in events.Tags()["scalars"] for e in events.Scalars(tag)}
    expected = wanted(lines)
    # The end of the shorter run was validated; a longer one's log leaves that out, a tracker keeps it.
    beside = {(tag, step) for tag, step in found.keys() - expected.keys()}
    assert all(step == 1 and tag.startswith(("val/", "timing_s/validation")) for tag, step in beside)
    assert expected.keys() <= found.keys()
    for key, value in expected.items():
        assert found[key] == pytest.approx(value, rel=1e-6)


def test_wandb_writes_an_offline_run(tmp_path, monkeypatch):
    pytest.importorskip("wandb", reason="wandb (the extra of that name) is absent")
    monkeypatch.setenv("WANDB_MODE", "offline")
    run(tmp_path / "run", "wandb", "run.iterations=1")
    files = list((tmp_path / "run").rglob("run-*.wandb"))
    assert len(files) == 1
    content = files[0].read_bytes()
    assert b"val/depth4-panel/success" in content
    assert b"update/grad_norm" in content


def test_trackio_keeps_the_run_locally(tmp_path, monkeypatch):
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "tracked"))  # trackio reads it when it is imported
    pytest.importorskip("trackio", reason="trackio (the extra of that name) is absent")
    run(tmp_path / "run", "trackio", "run.iterations=1")
    stored = b"".join(p.read_bytes() for p in (tmp_path / "tracked").rglob("*") if p.is_file())
    assert b"update/grad_norm" in stored


@pytest.mark.parametrize("name", ["tensorboard", "wandb", "trackio"])
def test_a_missing_package_is_one_clear_error_and_no_folder(name, tmp_path):
    if importlib.util.find_spec(name) is not None:
        pytest.skip(f"{name} is installed here")
    with pytest.raises(
        ValueError, match=rf"run\.loggers: {name} is not installed: pip install 'bipace\[{name}\]'"
    ):
        run(tmp_path / "run", name)
    assert not (tmp_path / "run").exists()


def test_an_unknown_logger_is_refused():
    with pytest.raises(ValueError, match=r"run\.loggers.*mlflow"):
        load_config(overrides=['run.loggers=["mlflow"]'])
