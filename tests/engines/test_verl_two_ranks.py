"""Stock verl on local Ray with two ranks on the CPU, padded and packed; and a worker without the plug-in."""

from __future__ import annotations

import importlib.util

import pytest

if importlib.util.find_spec("verl") is None:
    pytest.skip("verl lives in an environment of its own: make test-engines", allow_module_level=True)

from job_checks import *
from launch import job, overrides, prepare, run

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=[False, True], ids=["padded", "packed"])
def any_job(request, tmp_path_factory):
    folder = prepare(tmp_path_factory.mktemp("verl"))
    return job(folder, ("trainer.save_freq=1",), ranks=2, packed=request.param, steps=2, tasks=4, group=4)


def test_a_worker_without_the_plug_in_stops_the_job_with_the_way_out(tmp_path):
    prepare(tmp_path)
    arguments = overrides(tmp_path, ranks=1, packed=False, steps=1, tasks=2, group=2)
    modules = ("cpu_platform", "hf_rollout", "stock_engine", "bipace.integrations.verl.plugin")
    status, log = run(tmp_path, arguments, modules=modules)
    assert status != 0
    assert "plug-in is not loaded in every worker" in log.read_text()
