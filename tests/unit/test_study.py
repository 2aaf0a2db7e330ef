"""A study file becomes runs, or one line that says what is wrong with it."""

import pytest

pytest.importorskip("pydantic", reason="needs the cli extra")
pytest.importorskip("torch", reason="needs the train extra")

from pathlib import Path

from bipace.train.config import ConfigError
from bipace.train.study import load_study, run_state

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "studies"
SMALL = """
base = "demo"
seeds = [0, 3]
[config]
run.iterations = 4
credit.eps = 0.2
[methods.grpo]
estimator = "grpo"
[methods.bipace]
credit.w = 0.5
"""


def write(tmp_path, text=SMALL):
    path = tmp_path / "try.toml"
    path.write_text(text)
    return path


def test_methods_times_seeds_first_seeds_first(tmp_path):
    study = load_study(write(tmp_path))
    assert [run.name for run in study.runs] == [
        "textcraft/grpo/seed-0", "textcraft/bipace/seed-0", "textcraft/grpo/seed-3",
        "textcraft/bipace/seed-3",
    ]  # fmt: skip
    assert study.name == "try"
    assert [run.config.run.seed for run in study.runs] == [0, 0, 3, 3]
    assert {run.config.actor.threads for run in study.runs} == {1}


def test_base_config_method_and_command_line_win_in_this_order(tmp_path):
    grpo, bipace, *_ = load_study(write(tmp_path), ["update.lr=0.5"]).runs
    assert grpo.config.credit == {}  # grpo does not take the shared eps
    assert bipace.config.credit == {"eps": 0.2, "w": 0.5}
    assert (bipace.config.env.split, bipace.config.run.iterations, bipace.config.update.lr) == (
        "demo",
        4,
        0.5,
    )


def test_environments_multiply(tmp_path):
    text = SMALL + "[environments.short]\nenv.max_steps = 3\n[environments.long]\nenv.max_steps = 9\n"
    study = load_study(write(tmp_path, text))
    assert len(study.runs) == 8
    assert {(r.environment, r.config.env.max_steps) for r in study.runs} == {("short", 3), ("long", 9)}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("seeds", "seed", "key: unknown 'seed'; did you mean 'seeds'"),
        ("[0, 3]", "[0, 0]", r"seeds: \[0, 0\]"),
        ("[0, 3]", "[]", "seeds"),
        ("[methods.grpo]", '[methods."../grpo"]', r"name '../grpo'"),
        ('"grpo"', '"grpoo"', r"textcraft/grpo: recipe: unknown 'grpoo'; did you mean 'grpo'"),
        ("run.iterations", "run.iteration", "did you mean run.iterations"),
        ("credit.eps", "credit.epsi", r"credit\.epsi: no method's estimator takes it"),
        ("credit.w", "credit.ww", "ww"),
        ('"demo"', '"dem"', "no preset of that name"),
        ("[config]", "[config]\nenv.panel = 'moon'", "no split or panel 'moon'"),
        ("seeds", "baseline = 'ppo'\nseeds", "baseline: 'ppo' is no method"),
        ("seeds", "thresholds = [60]\nseeds", r"thresholds: \[60\]"),
    ],
)
def test_a_slip_is_one_line_that_names_it(old, new, message, tmp_path):
    with pytest.raises(ConfigError, match=message):
        load_study(write(tmp_path, SMALL.replace(old, new, 1)))


@pytest.mark.parametrize("name", sorted(p.name for p in EXAMPLES.glob("*.toml")))
def test_the_shipped_studies_load(name):
    assert load_study(EXAMPLES / name).runs


def test_a_folder_is_new_or_belongs_to_this_run(tmp_path):
    from bipace.train.files import write_json

    run, other, *_ = load_study(write(tmp_path)).runs
    folder = tmp_path / "run"
    assert run_state(run, folder) == "new"
    folder.mkdir()
    write_json(folder / "config.json", run.config.model_dump(mode="json"))
    assert run_state(run, folder) == "unfinished"  # killed before its first checkpoint
    with pytest.raises(ConfigError, match=r"these keys differ: credit\.eps.*estimator"):
        run_state(other, folder)
    (folder / "last").mkdir()
    for iteration, summary, state in ((2, 2, "unfinished"), (4, 2, "unfinished"), (4, 4, "finished")):
        write_json(folder / "last" / "trainer_state.json", {"iteration": iteration})
        write_json(folder / "summary.json", {"iterations": summary})
        assert run_state(run, folder) == state  # killed before its summary was written: not finished
    write_json(folder / "last" / "trainer_state.json", {"iteration": 5})
    with pytest.raises(ConfigError, match=r"has 5 iterations, the study plans run\.iterations=4"):
        run_state(run, folder)


def test_a_folder_with_something_else_in_it_is_left_alone(tmp_path):
    run = load_study(write(tmp_path)).runs[0]
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "thesis.tex").write_text("x")
    with pytest.raises(ConfigError, match="already holds something else"):
        run_state(run, tmp_path / "run")
