"""`bipace credit` from the outside: one JSON object for machines, files for people, one line for a
mistake.
"""

import json
import sys

import pytest

from bipace.cli import main


def run(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["bipace", "credit", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code


def test_json_names_every_metric_with_its_interval(monkeypatch, tmp_path, capsys):
    out = tmp_path / "grid"
    asked = ("--recipe", "gigpo", "--recipe", "bipace eps=0.02 layer=spread", "--smaller", 2, "--seeds", 2)
    assert run(
        monkeypatch, "world:grid", "--groups", 3, "--group-size", 4, "--out", out, "--json", *asked
    ) in (0, None)
    found = json.loads(capsys.readouterr().out)
    assert list(found["recipes"]) == ["gigpo", "bipace eps=0.02 layer=spread"]
    assert found["noise_ceiling"] == 1.0
    for metric in ("pearson", "spearman", "sign", "rmse", "zero_share", "gradient_cosine"):
        assert {"value", "low", "high"} <= set(found["recipes"]["gigpo"][metric])
        assert len(found["recipes"]["gigpo"][metric]["seeds"]) == 2
    assert {p.name for p in out.iterdir()} >= {
        "seed0.npz",
        "seed0.json",
        "seed1.npz",
        "credit.json",
        "credit.png",
    }


def test_a_folder_with_another_truth_is_refused(monkeypatch, tmp_path, capsys):
    common = ("world:grid", "--groups", 2, "--out", tmp_path / "t", "--recipe", "grpo", "--json")
    run(monkeypatch, *common, "--group-size", 2)
    assert run(monkeypatch, *common, "--group-size", 3) == 2
    assert "group_size" in capsys.readouterr().err


def test_an_actor_that_never_succeeds_gives_no_scores(monkeypatch, tmp_path, capsys, tiny_actor_folder):
    own = tmp_path / "own.py"
    own.write_text(
        "from bipace.envs.text_mdp import TextMDPSuite\nfrom bipace.theory.textworlds import world\n"
        "too_long = TextMDPSuite(world('corridor', length=3), max_steps=1)\n"
    )
    settings = (f"env.suite={own}:too_long", "env.panel=test", "env.held_out=[]", "env.max_steps=1")
    settings += ("prompt.max_new_tokens=8", "prompt.max_tokens=400")
    common = (
        tiny_actor_folder,
        *settings,
        "--groups",
        2,
        "--group-size",
        2,
        "--out",
        tmp_path / "t",
        "--json",
    )
    assert run(monkeypatch, *common, "--rerolls", 1) == 2
    assert "rerolls: 1, expected at least 2" in capsys.readouterr().err
    assert run(monkeypatch, *common, "--rerolls", 2) == 2
    captured = capsys.readouterr()
    assert "error: advantage: every true advantage is the same" in captured.err
    assert captured.out == ""
    assert not (tmp_path / "t" / "credit.json").exists()


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("world:nowhere",), "world"),
        (("world:grid", "--group-size", 1), "group_size"),
        (("world:grid", "--recipe", "bipac"), "bipace"),
        (("world:grid", "--group-size", 4, "--smaller", 9), "group_size"),
    ],
)
def test_a_mistake_is_one_line_that_names_it(monkeypatch, tmp_path, capsys, arguments, named):
    assert run(monkeypatch, *arguments, "--groups", 2, "--out", tmp_path / "t", "--json") == 2
    error = capsys.readouterr().err
    assert named in error
    assert error.count("\n") == 1
