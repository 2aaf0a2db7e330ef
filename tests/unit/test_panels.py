"""Which tasks a run plays: fixed panels by name and version, and the same draws from the same seed on any
machine.
"""

import json

import pytest

from bipace.envs.registry import get_suite
from bipace.rollout.panel import PANELS, shipped_name, task_digest
from bipace.rollout.sampler import choose_tasks

# Fixed for ever: scores on a panel are compared across versions. A panel with other tasks gets another name
# or version.
DIGESTS = {
    "textcraft/depth2-heldout-panel v1": "4f8c9f5fd2b5ccd4",
    "webshop-synthetic/gen-train-panel v1": "a1c7a97d9aeadcfc",
    "webshop-synthetic/gen-validation-panel v1": "bf9748b0431b942d",
    "alfworld/gen-panel v1": "fbf660c4cff282f7",
    "alfworld/gen-small-panel v1": "da347ab9203a7366",
    "alfworld/gen-256-panel v1": "e4c904998ac11740",
    "alfworld/gen-small-512-panel v1": "9d8c13882da8ef86",
    "alfworld/valid_seen v1": "a3825f6938f4b21f",
    "alfworld/valid_unseen v1": "07ecc1cbf51299c2",
    "textcraft/train-panel v1": "c8f249a32336dbb1",
    "textcraft/heldout-panel v1": "b9407727fd9f6066",
    "textcraft/depth3-panel v1": "37570337c88e3458",
    "textcraft/depth4-panel v1": "5e2d38e6b57bd5ab",
    "textcraft/demo-panel v1": "5e61b3a78e1e382f",
    "webshop/gen-validation-panel v1": "021612e17d6812e7",
    "webshop/gen-train-panel v1": "0512c8757c719225",
}


def shipped():
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in PANELS.glob("*.json")}


def test_the_shipped_lists_are_those_of_the_digests():
    assert {
        f"{s}/{n} v{e['version']}": e["sha256"][:16] for s, ps in shipped().items() for n, e in ps.items()
    } == DIGESTS
    for panels in shipped().values():
        for entry in panels.values():
            tasks = entry.get("tasks")
            if tasks is not None:
                assert (len(set(tasks)), task_digest(tasks)) == (entry["n"], entry["sha256"])


@pytest.mark.parametrize("name", ["textcraft", "webshop", "webshop-synthetic", "alfworld"])
def test_every_panel_of_a_suite_is_the_shipped_list(name, monkeypatch):
    monkeypatch.delenv("BIPACE_WEBSHOP_DATA", raising=False)
    suite = get_suite(name)
    panels = {split: tasks for split, tasks in suite.splits.items() if split.endswith("panel")}
    assert panels
    for panel, tasks in panels.items():
        assert list(tasks) == shipped()[name][panel]["tasks"], (
            f"{panel}: run tests/golden/panels.py for a new panel"
        )
        assert shipped_name(name, tasks) == f"{name}/{panel} v{shipped()[name][panel]['version']}"


def test_other_tasks_have_no_name():
    assert shipped_name("textcraft", ["minecraft:stick/0"]) is None
    assert shipped_name("../textcraft", []) is None


def test_a_seed_draws_the_same_tasks_everywhere():
    assert choose_tasks(1000, 5, seed=0, iteration=0, order="draws") == [635, 510, 269, 307, 847]
    assert choose_tasks(1000, 5, seed=7, iteration=3, order="draws") == [347, 883, 537, 725, 972]
    assert choose_tasks(1000, 5, seed=7, iteration=3, order="passes") == [489, 749, 482, 36, 971]


@pytest.mark.parametrize(("n", "count"), [(5, 2), (6, 3), (4, 4), (7, 1)])
def test_a_pass_plays_every_task_at_most_once_and_the_next_is_shuffled_anew(n, count):
    per_pass = n // count
    passes = [
        [
            task
            for i in range(per_pass)
            for task in choose_tasks(n, count, seed=0, iteration=k * per_pass + i, order="passes")
        ]
        for k in range(8)
    ]
    for played in passes:
        assert len(set(played)) == len(played) == per_pass * count
    assert len({tuple(played) for played in passes}) > 1
    assert set().union(*passes) == set(range(n))


@pytest.mark.parametrize("order", ["draws", "passes"])
def test_no_task_twice_in_an_iteration_and_too_many_are_refused(order):
    for iteration in range(20):
        assert len(set(choose_tasks(9, 4, seed=1, iteration=iteration, order=order))) == 4
    with pytest.raises(ValueError, match=r"rollout\.tasks: 10, expected 1 to 9"):
        choose_tasks(9, 10, seed=1, iteration=0, order=order)
