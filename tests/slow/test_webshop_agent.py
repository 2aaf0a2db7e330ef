"""WebShop through the command line: every recipe trains on a generated shop; scores are reported with their
data.
"""

import json
import subprocess
import sys

import pytest

pytest.importorskip("torch", reason="needs the train extra")
pytestmark = pytest.mark.slow

from bipace.core.estimators import RECIPES
from bipace.train.actors import SHIPPED

SHOP = """
from bipace.envs.webshop import generated_suite

def suite():
    return generated_suite(20)
"""
TINY = (
    "env.split=gen-validation", "env.panel=gen-validation", "env.held_out=[]", "rollout.tasks=2",
    "rollout.group_size=4", "run.iterations=2", "run.validate_every=2", "run.save_every=2", "actor.threads=1",
)  # fmt: skip
LABEL = "generated catalogue, 20 products, seed 0: not comparable with WebShop scores"


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    """The shipped actor in a shop of 20 products, which are the first 20 of the shop that it was trained
    in.
    """
    folder = tmp_path_factory.mktemp("shop")
    (folder / "shop.py").write_text(SHOP, encoding="utf-8")
    return ("--config", "webshop", f"env.suite={folder / 'shop.py'}:suite", *TINY)


def bipace(*arguments):
    command = [sys.executable, "-c", "from bipace.cli import main; main()", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("recipe", sorted(RECIPES))
def test_every_recipe_trains_on_a_generated_shop(recipe, settings, tmp_path):
    done = bipace("train", *settings, f"estimator={recipe}", "--out", str(tmp_path / "run"))
    assert done.returncode == 0, done.stderr
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (summary["recipe"], summary["suite"], summary["iterations"]) == (recipe, "webshop", 2)
    assert summary["data"] == summary["panel"]["data"] == LABEL
    assert "not comparable with WebShop scores" in " ".join(done.stdout.split())
    low, high = summary["panel"]["warm_start_score_ci95"]
    assert 0 < low < summary["panel"]["warm_start_score"] < high < 1
    log = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert len(log) == 3
    assert log[0]["val/gen-validation/reward_mean"] == summary["panel"]["warm_start_score"]
    assert all(line["episode/reward_mean"] >= line["episode/success_rate"] for line in log[1:])
    assert any(line["episode/reward_mean"] > 0 for line in log[1:])


def test_evaluations_carry_the_score_and_the_label(settings):
    shown = bipace("eval", "webshop-small", *settings, "--json")
    assert shown.returncode == 0, shown.stderr
    panel = json.loads(shown.stdout)["gen-validation"]
    assert panel["data"] == LABEL
    assert 0 <= panel["success"] <= panel["score"] <= 1


def test_the_shipped_actor_scores_what_its_record_says():
    record = json.loads((SHIPPED / "webshop-small" / "imitation.json").read_text())
    told = bipace("eval", "webshop-small", "--config", "webshop", "--panel", record["panel"], "--json")
    assert told.returncode == 0, told.stderr
    panel = json.loads(told.stdout)[record["panel"]]
    assert (panel["n"], panel["list"]) == (256, "webshop/gen-train-panel v1")
    low, high = panel["score_ci95"]
    assert low <= record["score"][-1][1] <= high


def test_an_actor_is_made_by_one_command(tmp_path):
    made = bipace(
        "imitate", str(tmp_path / "actor"), "--suite", "webshop", "--config", "webshop", "--size", "small",
        "--steps", "2", "--every", "2", "--batch", "4", "--lr", "1e-3", "--turns", "1",
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    record = json.loads((tmp_path / "actor" / "imitation.json").read_text())
    assert record["command"].endswith("--lr 0.001 --batch 4 --turns 1 --config webshop")
    assert record["data"] == "generated catalogue, 1,000 products, seed 0: not comparable with WebShop scores"
