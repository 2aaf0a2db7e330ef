"""The shipped recipes and the preflight command, against verl's own schema."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

if importlib.util.find_spec("verl") is None:
    pytest.skip("verl lives in an environment of its own: make test-engines", allow_module_level=True)

from launch import ACTOR, environment, overrides, prepare

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "verl"
RECIPES = sorted(p.stem for p in EXAMPLES.glob("*b.yaml"))

PAPER = {"1.5b": (-12, 0.05), "7b": (-8, 0.10)}
"""Size -> the layer and the radius of arXiv 2606.25556."""
SUITES = {"alfworld": "alfworld", "textcraft": "textcraft", "webshop": "webshop-synthetic"}

CHECK = """
import json
import sys
from pathlib import Path
from omegaconf import OmegaConf
from verl.utils.config import validate_config
from bipace.integrations.verl.guards import check_config
from bipace.integrations.verl.preflight import compose_config
import yaml
folder = Path(sys.argv[1])
stock = compose_config([])
def leaves(tree, path=""):
    for key, value in tree.items():
        if key not in ("defaults", "bipace"):
            yield from leaves(value, f"{path}{key}.") if isinstance(value, dict) else [f"{path}{key}"]
def known(tree, path):
    for part in path.split("."):
        if part not in tree:
            return False
        tree = tree[part]
    return True
for name in sys.argv[2:]:
    config = compose_config([], name, folder)
    validate_config(OmegaConf.create(config), use_reference_policy=True, use_critic=False)
    settings = check_config(config)
    for file in ("bipace_base", name):
        set_here = leaves(yaml.safe_load((folder / f"{file}.yaml").read_text()))
        unknown = [p for p in set_here if not known(stock, p)]
        assert not unknown, (name, unknown)
    suite, shown = settings.env.suite, [settings.features.layer, settings.credit["eps"]]
    shown += [settings.estimator, settings.captures, settings.prompt.style]
    print("RECIPE", json.dumps([name, suite, *shown]))
"""


def run(folder, *command):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", *command], env=environment(folder), cwd=folder, capture_output=True,
        text=True,
        timeout=240,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def test_every_recipe_composes_under_verls_schema_and_sets_only_keys_that_verl_has(tmp_path):
    status, out = run(tmp_path, "-c", CHECK, str(EXAMPLES), *RECIPES)
    assert status == 0, out[-3000:]
    found = [
        json.loads(line.removeprefix("RECIPE ")) for line in out.splitlines() if line.startswith("RECIPE ")
    ]
    assert len(RECIPES) == 6
    assert sorted(found) == [
        [name, SUITES[name.split("_")[0]], *PAPER[name.split("_")[1]], "bipace", True, "window"]
        for name in RECIPES
    ]


def preflight(folder, *more):
    arguments = overrides(folder, ranks=1, packed=False, steps=9, tasks=2, group=2)
    return run(folder, "-m", "bipace.integrations.verl.preflight", *arguments, *more)


@pytest.fixture
def data(tmp_path):
    return prepare(tmp_path)


def test_preflight_ends_with_two_real_steps_on_a_machine_that_is_ready(data):
    status, out = preflight(data, "--dry-run")
    assert status == 0, out[-3000:]
    assert "ready" in out.splitlines()
    assert "hidden_states[1]" in out
    assert "1 node(s) load the plug-in" in out
    assert "ok     dry run: two steps ran" in out
    assert "step:2" in out
    assert not list(data.glob("global_step_*"))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("algorithm.rollout_correction.bypass_mode=true", "bypass_mode"),
        ("+bipace.features.layer=9", "has 2 layers"),
        ("actor_rollout_ref.model.path=absent", "FAILED model"),
        ("data.train_files=absent.parquet", "make it with"),
        ("data.no_such_key=1", "no_such_key"),
    ],
)
def test_preflight_names_what_is_wrong(data, change, words):
    status, out = preflight(data, change)
    assert status > 0
    assert words in out


def test_a_shipped_actor_is_where_the_tests_look_for_it():
    assert (ACTOR / "config.json").is_file()
