"""Run folders become a summary, Markdown and pictures."""

import json

import pytest

pytest.importorskip("scipy", reason="needs the train extra")
pytest.importorskip("matplotlib", reason="needs the train extra")

import numpy as np

from bipace.report.curves import curve, series
from bipace.report.figures import _curves, _style, draw_figures
from bipace.report.markdown import report_markdown
from bipace.report.runs import read_runs
from bipace.report.summary import summarize_study
from run_folders import HOSTILE, hostile_episode, write_run, write_study


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    methods = {"gigpo": 0.2, "bipace": 0.4, "flat": 0.0}
    return write_study(tmp_path_factory.mktemp("s") / "mine", methods, range(4), environments=("one", "two"))


@pytest.fixture(scope="module")
def found(folder):
    return summarize_study(read_runs([folder]))


def validation(folder, place, method, seed):
    lines = (folder / f"{place}/{method}/seed-{seed}/metrics.jsonl").read_text().splitlines()
    return [json.loads(line)["val/demo-panel/success"] for line in lines if "val/demo-panel/success" in line]


def test_best_and_last_validation_are_those_of_the_logs(folder, found):
    peaks = [max(validation(folder, "one", 1, seed)) for seed in range(4)]
    lasts = [validation(folder, "one", 1, seed)[-1] for seed in range(4)]
    method = found["environments"]["one"]["methods"]["bipace"]
    assert method["val_at_max"]["values"] == peaks
    assert method["val_at_max"]["mean"] == pytest.approx(np.mean(peaks))
    assert method["val_at_max"]["std"] == pytest.approx(np.std(peaks, ddof=1))
    assert method["last"]["mean"] == pytest.approx(np.mean(lasts))
    low, high = method["val_at_max"]["interval"]
    assert low <= method["val_at_max"]["iqm"] <= high
    assert method["seeds"] == [0, 1, 2, 3]


def test_the_whole_curve_is_compared_seed_by_seed(folder, found):
    curves = found["environments"]["one"]["whole_curves"]
    level = {
        m: [np.mean(validation(folder, "one", k, s)[1:]) for s in range(4)]
        for k, m in ((0, "gigpo"), (1, "bipace"))
    }
    assert curves["bipace"]["mean"] == pytest.approx(np.mean(level["bipace"]))
    assert curves["bipace"]["std"] == pytest.approx(np.std(level["bipace"], ddof=1))
    pairs = np.subtract(level["bipace"], level["gigpo"])
    difference = curves["bipace"]["difference"]
    assert difference["mean"] == pytest.approx(pairs.mean())
    assert (difference["ahead"], difference["n"]) == ((pairs > 0).sum(), 4)
    low, high = difference["interval"]
    assert pairs.min() <= low <= difference["mean"] <= high <= pairs.max()
    assert curves["gigpo"]["difference"] is None


def test_training_success_counts_every_iteration_alike_and_pairs_by_seed(folder, found):
    def played(method, seed):
        lines = (folder / f"one/{method}/seed-{seed}/metrics.jsonl").read_text().splitlines()
        rates = [json.loads(line).get("episode/success_rate") for line in lines]
        return np.mean([rate for rate in rates if rate is not None])

    level = {m: [played(k, s) for s in range(4)] for k, m in ((0, "gigpo"), (1, "bipace"))}
    entry = found["environments"]["one"]["training_success"]["bipace"]
    assert entry["mean"] == pytest.approx(np.mean(level["bipace"]))
    pairs = np.subtract(level["bipace"], level["gigpo"])
    assert entry["difference"]["mean"] == pytest.approx(pairs.mean())
    assert (entry["difference"]["ahead"], entry["difference"]["n"]) == ((pairs > 0).sum(), 4)
    assert "### Success over all training episodes" in report_markdown(found)


@pytest.mark.parametrize("measure", ["whole_curves", "training_success"])
def test_runs_of_other_lengths_are_no_pair(measure, tmp_path):
    write_run(tmp_path / "a")
    write_run(tmp_path / "b", iterations=15, config={"estimator": "bipace"})
    study = summarize_study(read_runs([tmp_path / "a", tmp_path / "b"]))
    (found,) = [e[measure] for e in study["environments"].values()]
    assert found["bipace"]["difference"] is None


def test_gap_and_profile_are_over_the_runs_of_all_environments(found):
    for entry in [found["overall"]["bipace"], found["environments"]["one"]["methods"]["bipace"]]:
        peak = entry["val_at_max"]
        assert peak["gap"]["value"] == pytest.approx(1 - peak["mean"])  # no rate is above 1
        profile = peak["profile"]
        above = [np.mean([v > tau for v in peak["values"]]) for tau in np.linspace(0, 1, 51)]
        assert profile["share"] == pytest.approx(above)
        assert len(profile["low"]) == len(profile["high"]) == len(profile["tau"]) == 51
    assert "| optimality gap |" in report_markdown(found)


def test_environments_are_strata_of_one_result(found):
    overall = found["overall"]["bipace"]
    assert overall["val_at_max"]["n"] == 8
    assert overall["improvement"]["value"] == 1.0
    assert found["overall"]["gigpo"]["improvement"] is None  # the baseline against itself says nothing


def test_a_method_that_never_gets_there_never_does(folder):
    found = summarize_study(read_runs([folder]), "gigpo", [0.55, 0.65, 0.95])
    steps = found["environments"]["one"]["steps"]
    assert [s["threshold"] for s in steps["bipace"]] == [0.55, 0.65, 0.95]
    assert steps["flat"][1]["iteration"] is None
    assert steps["bipace"][2] == {
        "threshold": 0.95, "iteration": None, "speed_up": None, "seeds_reaching": 0, "seeds": 4,
    }  # fmt: skip
    fast, slow = steps["bipace"][1], steps["gigpo"][1]
    assert fast["iteration"] < slow["iteration"]
    assert fast["speed_up"] == slow["iteration"] / fast["iteration"]
    assert slow["speed_up"] == 1
    assert "never" in report_markdown(found)


def test_default_thresholds_lie_between_start_and_best(found):
    thresholds = found["environments"]["one"]["thresholds"]
    assert thresholds[0] >= 0.5
    assert thresholds[-1] <= 0.95
    assert np.allclose(np.diff(thresholds), 0.05)


def test_the_band_holds_the_mean_and_needs_two_seeds(folder):
    records = [r for r in read_runs([folder]).runs if (r.environment, r.method) == ("one", "bipace")]
    made = curve(records, "val/demo-panel/success", band=True)
    assert made is not None
    assert made["iterations"] == [0, 5, 10, 15, 20]
    assert all(
        low <= mean <= high for low, mean, high in zip(made["low"], made["mean"], made["high"], strict=True)
    )
    assert "low" not in (curve(records[:1], "val/demo-panel/success") or {})
    assert curve(records, "no/such") is None
    assert series(records[0], "event/unparsed / group/steps")[1] == [3 / 900] * 20


def test_a_value_that_is_not_finite_is_left_out_and_the_rest_is_json(tmp_path):
    run = write_run(tmp_path / "run")
    with (run / "metrics.jsonl").open("a") as log:
        log.write(
            '{"iteration": 21, "update/grad_norm": NaN, "update/loss": Infinity}\n{"iteration": 22, "upd'
        )
    found = summarize_study(read_runs([run]))
    assert json.loads(json.dumps(found, allow_nan=False))["runs"][0]["iterations"] == 21


def test_loose_runs_of_one_estimator_are_named_by_the_settings_that_differ(tmp_path):
    for i, (eps, seed) in enumerate([(0.1, 0), (0.1, 1), (0.2, 0), (0.2, 1)]):
        write_run(tmp_path / f"r{i}", seed=seed, config={"estimator": "bipace", "credit": {"eps": eps}})
    study = read_runs([tmp_path])
    assert {run.method for run in study.runs} == {"bipace (credit.eps=0.1)", "bipace (credit.eps=0.2)"}
    found = summarize_study(study)
    assert found["config"]["differences"] == {
        "credit.eps": {"textcraft/bipace (credit.eps=0.1)": 0.1, "textcraft/bipace (credit.eps=0.2)": 0.2}
    }
    assert found["config"]["differ_between_seeds"] == []


def test_unfinished_and_missing_runs_are_said(tmp_path):
    folder = write_study(tmp_path / "s", {"grpo": 0.1}, [0, 1])
    (folder / "textcraft/0/seed-1/metrics.jsonl").unlink()
    config = folder / "textcraft/0/seed-0/config.json"
    config.write_text(config.read_text().replace('"iterations": 20', '"iterations": 40'))
    notes = " ".join(summarize_study(read_runs([folder]))["notes"])
    assert "1 planned runs have not logged anything: textcraft/grpo/seed-1" in notes
    assert "1 runs are not finished: textcraft/grpo/seed-0" in notes
    assert "fewer than three seeds" in notes


def test_what_cannot_be_reported_is_one_clear_error(tmp_path):
    with pytest.raises(ValueError, match="no folder"):
        read_runs([tmp_path / "nowhere"])
    with pytest.raises(ValueError, match="holds no run"):
        read_runs([tmp_path])
    run = write_run(tmp_path / "run")
    with pytest.raises(ValueError, match="is there twice"):
        read_runs([run, run])
    with pytest.raises(ValueError, match=r"--baseline 'ppo' is no method of these runs: gigpo"):
        summarize_study(read_runs([run]), "ppo")


def test_hostile_names_stay_text_in_markdown_and_pictures(tmp_path):
    folder = write_study(
        tmp_path / "s", {HOSTILE: 0.1, "_hidden": 0.2, "gigpo": 0.1}, [0, 1], environments=(HOSTILE[:20],)
    )
    found = summarize_study(read_runs([folder]))
    text = report_markdown(found)
    assert "<script" not in text
    assert "<img" not in text
    widths = {
        line.replace("\\|", "").count("|") for line in text.splitlines() if line.startswith("| &lt;/script")
    }
    assert all(width > 2 for width in widths)
    assert draw_figures(found, tmp_path) == ["curves.png", "peak.png", "profiles.png", "diagnostics.png"]
    assert all(
        (tmp_path / name).stat().st_size > 5_000 for name in ("curves.png", "peak.png", "diagnostics.png")
    )


def test_saved_episodes_are_sampled_solved_and_failed(tmp_path):
    run = write_run(
        tmp_path / "run", episodes=[hostile_episode(True), hostile_episode(False), hostile_episode(False)]
    )
    with (run / "rollouts.jsonl").open("a") as file:
        file.write('{"iteration": 21, "steps"')
    episodes = summarize_study(read_runs([run]))["episodes"]
    assert [e["won"] for e in episodes] == [True, False]
    assert episodes[0]["steps"][0]["observation"] == f"a room {HOSTILE}"


def test_the_papers_tables_are_means_over_the_seeds_at_that_iteration(tmp_path):
    folder = write_study(tmp_path / "s", {"gigpo": 0.2, "bipace": 0.4}, range(3))
    for number, path in enumerate(sorted(folder.rglob("seed-*/metrics.jsonl"))):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        for line in lines:
            line |= {
                "cluster/singleton_rate": 0.1 * number,
                "credit/branch_fallback": line["iteration"] / 100,
            }
            if number == 0:
                del line["credit/branch_fallback"]
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = summarize_study(read_runs([folder]), at=(5, 10))
    paper = found["environments"]["textcraft"]["paper"]
    assert paper["iterations"] == [5, 10]
    singles = [rows["5"]["cluster/singleton_rate"] for rows in paper["methods"].values()]
    assert sorted(singles) == pytest.approx([0.1, 0.4])
    assert all(
        rows["10"]["credit/branch_fallback"] == pytest.approx(0.1) for rows in paper["methods"].values()
    )
    text = report_markdown(found)
    assert "published: ALFWorld 7B, hidden state; 4 x H100, not comparable" in text
    default = summarize_study(read_runs([folder]))["environments"]["textcraft"]["paper"]["iterations"]
    assert default == [1, 10, 20]
    with pytest.raises(ValueError, match="--at 99: expected an iteration from 1 to 20"):
        summarize_study(read_runs([folder]), at=(99,))


def test_degenerate_clusters_of_a_method_are_noted_once(tmp_path):
    folder = write_study(tmp_path / "s", {"gigpo": 0.2, "bipace": 0.4}, range(2))
    shape = {"clusters": 40, "singleton_rate": 0.01, "largest_share": 0.95, "lone_step_share": 0.0}
    for path in folder.rglob("seed-*"):
        config = json.loads((path / "config.json").read_text())
        config["credit"] = {"eps": 0.5} if config["estimator"] == "bipace" else {}
        (path / "config.json").write_text(json.dumps(config))
        lines = (path / "metrics.jsonl").read_text().splitlines()
        last = json.loads(lines[-1]) | {f"cluster/{name}": value for name, value in shape.items()}
        (path / "metrics.jsonl").write_text("\n".join([*lines[:-1], json.dumps(last)]) + "\n")
    notes = [note for note in summarize_study(read_runs([folder]))["notes"] if "one cluster holds" in note]
    assert len(notes) == 1
    assert notes[0].startswith(
        "textcraft/bipace/seed-0, iteration 20: one cluster holds 95 % of its prompt group"
    )


def test_a_log_of_an_earlier_release_shows_its_metrics_under_todays_names(tmp_path):
    run = write_run(tmp_path / "run")
    log = run / "metrics.jsonl"
    log.write_text(log.read_text().replace("perf/credit_share", "perf/bipace_share"))
    record = read_runs([run]).runs[0]
    assert set(series(record, "perf/credit_share")[1]) == {0.003}
    assert series(record, "perf/bipace_share") == ([], [])


def test_no_two_of_many_methods_are_drawn_alike_and_the_legend_stands_beside_the_chart(tmp_path):
    study = write_study(tmp_path / "s", {f"method-{i:02d}": 0.1 for i in range(12)}, [0])
    found = summarize_study(read_runs([study]))
    drawn = []

    class Plt:
        """pyplot that keeps what was drawn."""

        def __getattr__(self, name):
            from matplotlib import pyplot

            return getattr(pyplot, name)

        def subplots(self, *args, **options):
            from matplotlib import pyplot

            drawn.append(pyplot.subplots(*args, **options))
            return drawn[-1]

    names = list(found["methods"])
    figure = _curves(Plt(), found, {name: _style(i) for i, name in enumerate(names)})
    axis = drawn[0][1][0][0]
    assert len({(line.get_color(), str(line._dash_pattern)) for line in axis.get_lines()}) == 12
    figure.canvas.draw()
    assert figure.legends[0].get_window_extent().x0 >= axis.get_window_extent().x1
