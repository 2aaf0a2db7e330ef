"""Every logged metric is explained."""

import json
import re

import pytest

pytest.importorskip("torch", reason="needs the train extra")
pytestmark = pytest.mark.slow

from bipace.train.config import load_config
from bipace.train.loop import train
from glossary import unexplained


def test_a_run_logs_nothing_unexplained(tmp_path):
    overrides = (
        "run.iterations=1", "rollout.tasks=2", "rollout.group_size=2", "env.panel=depth4-panel",
        "env.held_out=[]",
        "features.source=separate", "update.kl_loss_coef=0.01",
    )  # fmt: skip
    train(load_config(overrides=overrides), tmp_path / "run", on_iteration=lambda *_: None)
    logged = set()
    for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines():
        for name in json.loads(line):
            name = re.sub(r"success/depth-\d", "success/FAMILY", name.replace("depth4-panel", "PANEL"))
            logged.add(name)
    assert unexplained(logged) == {"iteration"}
