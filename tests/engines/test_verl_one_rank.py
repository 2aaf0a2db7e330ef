"""Stock verl on local Ray with one rank on the CPU and the shipped actor: a job that learns, and its
continuation.

A job takes most of a minute, so each is run once and asserted from many sides.
"""

from __future__ import annotations

import importlib.util
import json

import pytest

if importlib.util.find_spec("verl") is None:
    pytest.skip("verl lives in an environment of its own: make test-engines", allow_module_level=True)

from job_checks import *
from launch import LEARNING, LEARNING_STEPS, VALIDATION, job, prepare

pytestmark = pytest.mark.slow

RISE = 0.15


@pytest.fixture(scope="module")
def learning_job(tmp_path_factory):
    folder = prepare(tmp_path_factory.mktemp("learning"))
    return job(folder, ("trainer.save_freq=1", *VALIDATION), **LEARNING)


@pytest.fixture(scope="module")
def resumed_job(learning_job):
    """Two more steps from the last checkpoint, packed this time: the layout is no part of a checkpoint."""
    shape = {**LEARNING, "packed": True, "steps": LEARNING_STEPS + 2, "tasks": 4, "group": 4}
    return job(learning_job.folder, ("trainer.save_freq=1",), name="resumed", **shape)


@pytest.fixture(scope="module", params=["learning_job", "resumed_job"], ids=["padded", "packed"])
def any_job(request):
    return request.getfixturevalue(request.param)


def test_it_learns(learning_job):
    before, after = learning_job.success(0), learning_job.success(LEARNING_STEPS)
    assert after - before >= RISE, f"success {before:.3f} -> {after:.3f} in {LEARNING_STEPS} steps"


def test_a_resumed_job_starts_from_the_saved_weights_and_step(resumed_job):
    assert sorted(resumed_job.metrics) == [LEARNING_STEPS + 1, LEARNING_STEPS + 2]
    lines = [json.loads(line) for line in (resumed_job.folder / "weights.jsonl").read_text().splitlines()]
    trained, loaded = [line["checksum"] for line in lines if line["version"] == LEARNING_STEPS]
    assert loaded == trained
