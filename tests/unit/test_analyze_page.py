"""What the page and the exported table are made of: a finding's reach, files compared, texts cut, colours
apart.
"""

from __future__ import annotations

import base64
import gzip
import json
import re
from itertools import combinations

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="scikit-learn (the extra `analyze`) is absent")

from bipace.analyze import Options, analyze
from bipace.analyze.compare import compare_files
from bipace.analyze.evidence import Worst
from bipace.analyze.export import columns_of
from bipace.analyze.page_data import CUTS, page_data
from bipace.analyze.table import file_names
from bipace.page.html import build_page
from bipace.page.palette import DARK, LIGHT
from samples import needs_sample, sample

TAU = ("trajectories", "tau_bench_airline_gpt4o.json")


def episode(task, member, pairs, reward=0.0):
    steps = [
        {"observation": o, "response": f"<action>{a}</action>", "action": a, "parsed": True, "reward": 0.0}
        for o, a in pairs
    ]
    steps[-1]["reward"] = reward
    return {"task": task, "member": member, "steps": steps}


def write(path, records):
    path.write_text("".join(json.dumps(r) + "\n" for r in records), encoding="utf-8")
    return path


def finding(found, identity):
    return next(f for f in found.findings if f.id == identity)


def test_a_finding_names_its_worst_groups_with_their_numbers(tmp_path):
    loop = [("pit", "cry")]
    rows = [episode("calm", m, [("hall", "go"), ("door", f"a{m}")], float(m)) for m in range(2)]
    rows += [episode("one", m, [("hall", "go"), *loop * 2], float(m)) for m in range(2)]
    rows += [episode("much", m, [("hall", "go"), *loop * 4], float(m)) for m in range(2)]
    found = analyze(write(tmp_path / "l.jsonl", rows))
    loops = finding(found, "loops")
    # "much" repeats three of its five steps in each of two rollouts, "one" one of three.
    assert loops.worst == [
        Worst(2, "6 of 10 steps repeat an earlier one"),
        Worst(1, "2 of 6 steps repeat an earlier one"),
    ]
    assert (loops.count, list(loops.groups)) == (8, [2, 1])
    assert loops.harm == pytest.approx(8 / 20 / 2)
    shown = next(f for f in found.findings_json() if f["id"] == "loops")
    assert shown["worst"][0] == {"group": 2, "task": "much", "number": "6 of 10 steps repeat an earlier one"}


def test_findings_of_one_severity_are_in_order_of_harm(tmp_path):
    rows = [
        episode(f"t{g}", m, [(f"o{g}{m}{t}", "x") for t in range(3)], 0.0) for g in range(4) for m in range(2)
    ]
    rows += [episode("varied", m, [("o", "x")], float(m)) for m in range(2)]
    found = analyze(write(tmp_path / "h.jsonl", rows))
    warnings = [f for f in found.findings if f.severity == "warning" and not f.first]
    assert [f.id for f in warnings][:2] == ["flat-groups", "exact-text-peers"]
    assert warnings[0].harm == pytest.approx(24 / 26)
    assert warnings[1].harm == pytest.approx(24 / 26 / 2)


def test_own_steps_are_no_peers_where_a_finding_says_what_step_credit_changes(tmp_path):
    # Each trajectory sees its own room twice: its clusters hold two steps and one trajectory.
    rows = [
        episode("t", m, [(f"room {'abcd'[m] * 9}", f"go {t}") for t in range(2)], float(m == 0))
        for m in range(4)
    ]
    found = analyze(write(tmp_path / "o.jsonl", rows), Options(eps=0.0))
    assert found.credits["gigpo"].diagnostics["lone_step_share"] == 0
    assert not np.array_equal(found.credits["gigpo"].values, found.credits["grpo"].values)
    assert "changes the advantage of 0% of steps with BiPACE" in finding(found, "step-credit").title
    assert finding(found, "step-credit").title.endswith("and 0% with GiGPO")
    assert finding(found, "step-credit").worst == []


def test_advice_on_similarity_follows_the_sweep(tmp_path):
    def told(name, rows):
        found = analyze(write(tmp_path / f"{name}.jsonl", rows))
        return found.best_eps(), finding(found, "exact-text-peers").advice

    hall = "you stand in the large old hall of the house"
    wall = "door in the wall before you"
    # One state in a wording of its own for every rollout, which tells red from blue: wider radii join what is
    # alike.
    apart = [
        episode(
            f"t{g}", m,
            [(f"{hall} number {m}", "go"), (f"you see a {'red' if m % 2 else 'blue'} {wall} {m}", "x")],
            float(m % 2),
        ) for g in range(4) for m in range(8)
    ]  # fmt: skip
    best, advice = told("apart", apart)
    assert best == 0.3
    assert advice.startswith("Group by similar states instead of equal text (bipace or bigpo with eps = 0.3)")
    # The same text wherever the value is the same: a wider radius only mixes red with blue.
    same = [
        episode(f"t{g}", m, [(f"you see a {'red' if m % 2 else 'blue'} {wall} {hall}", "x")], float(m % 2))
        for g in range(4) for m in range(8)
    ]  # fmt: skip
    best, advice = told("same", same)
    assert best == 0
    assert advice.startswith("Do not widen the radius")
    best, advice = told("lone", [episode(f"t{g}", 0, [("hall", "go")], float(g)) for g in range(3)])
    assert best is None
    assert "cannot be judged" in advice


@needs_sample(*TAU)
def test_tau_bench_is_not_told_to_join_states_that_look_alike():
    found = analyze(sample(*TAU))
    assert found.best_eps() == 0
    assert finding(found, "exact-text-peers").advice.startswith("Do not widen the radius")


def test_files_are_compared_by_hand_counted_numbers(tmp_path):
    first = [episode(t, m, [("x", "y"), ("x", "z")], r) for t in "abc" for m, r in enumerate((0.0, 1.0))]
    second = [episode(t, m, [("x", "y")], r) for t in "bcd" for m, r in enumerate((1.0, 1.0))]
    paths = [write(tmp_path / "1.jsonl", first), write(tmp_path / "2.jsonl", second)]
    for merge in (False, True):
        compared = compare_files(analyze(paths, Options(merge=merge)))
        assert compared is not None
        a, b = compared["files"]
        assert (a["trajectories"], a["steps"], a["outcome_mean"], a["flat_group_share"]) == (6, 12, 0.5, 0)
        assert (b["trajectories"], b["steps"], b["outcome_mean"], b["flat_group_share"]) == (6, 6, 1.0, 1)
        assert (a["duplicate_share"], b["loop_step_share"]) == (0.5, 0)
        assert compared["pairs"] == [[0, 1, 2, 0.5, [0.5, 0.5], 2, 0]]
        assert {name: [e["0"][:2], e["1"][:2]] for name, e in compared["tasks"].items()} == {
            "b": [[2, 0.5], [2, 1.0]], "c": [[2, 0.5], [2, 1.0]],
        }  # fmt: skip


def test_nothing_is_compared_where_there_is_one_file_or_one_rollout_a_file(tmp_path):
    one = write(tmp_path / "1.jsonl", [episode("a", 0, [("x", "y")], 1.0)])
    two = write(tmp_path / "2.jsonl", [episode("a", 1, [("x", "y")], 0.0)])
    assert compare_files(analyze(one)) is None
    assert compare_files(analyze([one, two])) is None


@pytest.mark.parametrize(
    ("files", "names"),
    [
        (["/home/me/runs/a.jsonl"], ["a.jsonl"]),
        (["x/1/a.jsonl", "x/2/a.jsonl", "x/b.jsonl"], ["1/a.jsonl", "2/a.jsonl", "b.jsonl"]),
        (["a.jsonl", "x/a.jsonl"], ["a.jsonl", "x/a.jsonl"]),
        (["a.jsonl", "a.jsonl"], ["a.jsonl", "a.jsonl"]),
        (["", "a"], ["", "a"]),
    ],
)
def test_files_are_named_by_as_little_as_keeps_them_apart(files, names):
    assert [n if n != "." else "" for n in file_names(files)] == names


def test_the_table_of_steps_holds_every_recipes_arithmetic(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow (the extra `analyze`) is absent")
    csv = pytest.importorskip("pyarrow.csv")
    rows = [
        episode("t", m, [("hall", "go"), (f"door {m % 2}", "ab"[m % 2])], float(m == 0)) for m in range(4)
    ]
    rows[0]["steps"][0]["observation"] = "half a pair \ud800"
    found = analyze(write(tmp_path / "e.jsonl", rows))
    found.export(tmp_path / "sub" / "steps.parquet")
    table = parquet.read_table(tmp_path / "sub" / "steps.parquet")
    assert table.num_rows == 8
    assert table["trajectory"].to_pylist()[:3] == [found.table.trajectories[0].name] * 2 + [
        found.table.trajectories[1].name
    ]
    assert table["t"].to_pylist() == [0, 1] * 4
    for name, credit in found.credits.items():
        np.testing.assert_array_equal(table[f"{name}.advantage"].to_numpy(), credit.values)
    q, v, scale, value, branch = (
        table[f"bipace.step.{k}"].to_numpy() for k in ("q", "v", "scale", "value", "branch")
    )
    compared = branch > 0
    np.testing.assert_allclose(value[compared], ((q - v) / scale)[compared])
    assert compared.any()
    np.testing.assert_array_equal(
        table["eps_0.1.cluster"].to_numpy(), table["bipace.step.cluster"].to_numpy()
    )
    assert any(name.startswith("hgpo.step_2.") for name in table.column_names)
    found.export(tmp_path / "steps.csv")
    again = csv.read_csv(tmp_path / "steps.csv")
    assert again.column_names == table.column_names
    np.testing.assert_allclose(again["bipace.advantage"].to_numpy(), found.credits["bipace"].values)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["e.jsonl", "steps.csv", "sub"]
    with pytest.raises(
        ValueError, match=r"--export .*steps\.xls: expected a file that ends in \.parquet or \.csv"
    ):
        found.export(tmp_path / "steps.xls")


def test_every_step_of_the_table_is_a_row_whatever_the_file(tmp_path):
    found = analyze(write(tmp_path / "one.jsonl", [episode("t", 0, [("x", "y")], 1.0)]))
    assert {len(column) for column in columns_of(found).values()} == {1}


def test_blocks_hold_every_group_once_and_the_numbers_of_all_steps(tmp_path):
    rows = [
        episode(f"t{g}", m, [(f"o{t}", f"a{m}") for t in range(40)], float(m))
        for g in range(9)
        for m in range(4)
    ]
    found = analyze(write(tmp_path / "b.jsonl", rows))
    data, blocks = page_data(found)
    index = blocks.pop("index")
    assert [g["id"] for g in index] == list(range(9))
    assert data["blocks"] == len(blocks) > 1
    shown = [
        value
        for i in range(len(blocks))
        for b in [blocks[str(i)]]
        for value in b["columns"][b["credit"]["bipace"]["value"]]
    ]
    np.testing.assert_allclose(shown, found.credits["bipace"].values, rtol=1e-9, atol=1e-12)
    assert [g["block"] for g in index] == [i for i in range(len(blocks)) for _ in blocks[str(i)]["groups"]]


def test_texts_are_cut_until_the_page_has_the_size_asked_for(tmp_path):
    random = np.random.default_rng(0)
    noise = lambda: base64.b64encode(random.bytes(6000)).decode()  # noqa: E731
    rows = [
        episode(f"t{g}", m, [(noise(), noise()[:300]) for _ in range(5)], float(m))
        for g in range(20)
        for m in range(2)
    ]
    path = write(tmp_path / "n.jsonl", rows)
    for megabytes, least in ((30.0, CUTS[0]), (0.7, 300)):
        found = analyze(path, Options(page_mb=megabytes))
        found.write_page(tmp_path / "n.html")
        limit = page_data(found)[0]["text_limit"]
        assert limit == least if megabytes > 1 else CUTS[-1] <= limit < CUTS[0]
        assert (tmp_path / "n.html").stat().st_size < megabytes * 1.1e6
    with pytest.raises(ValueError, match="--page-mb"):
        Options(page_mb=0.0)


def test_the_page_is_the_same_twice_and_a_block_is_what_was_put_in():
    block = {"texts": ["</script>", "a\ud800b"], "n": [1.5]}
    page = build_page("bipace.report", "T", ("tables.js",), {"x": 1}, {"0": block})
    assert page == build_page("bipace.report", "T", ("tables.js",), {"x": 1}, {"0": block})
    held = re.search(r'id="block-0">([A-Za-z0-9+/=]*)</script>', page)
    assert held is not None
    assert json.loads(gzip.decompress(base64.b64decode(held[1]))) == {
        "texts": ["</script>", "a?b"],
        "n": [1.5],
    }


# Viénot, Brettel and Mollon 1999 (protanopia, deuteranopia) and Brettel's tritan approximation, on linear
# RGB.
SIGHTS = {
    "normal": np.eye(3),
    "protan": np.array([[0.1124, 0.8876, 0.0], [0.1124, 0.8876, 0.0], [0.0040, -0.0040, 1.0]]),
    "deutan": np.array([[0.2928, 0.7072, 0.0], [0.2928, 0.7072, 0.0], [-0.0223, 0.0223, 1.0]]),
    "tritan": np.array([[1.0, 0.1462, -0.1462], [0.0, 0.8594, 0.1406], [0.0, 0.8594, 0.1406]]),
}


def linear(colour):
    values = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def lab(rgb):
    xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]) @ np.clip(
        rgb, 0, 1
    )
    f = np.cbrt(np.maximum(xyz / [0.9505, 1.0, 1.089], 1e-9))
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def contrast(a, b):
    one, two = sorted([linear(c) @ [0.2126, 0.7152, 0.0722] for c in (a, b)])
    return (two + 0.05) / (one + 0.05)


@pytest.mark.parametrize(("colours", "paper"), [(LIGHT, "#ffffff"), (DARK, "#1c2226")])
def test_colours_of_methods_stay_apart_for_every_sight(colours, paper):
    for name, sight in SIGHTS.items():
        seen = [lab(sight @ linear(c)) for c in colours]
        assert np.linalg.norm(seen[0] - seen[1]) > 40, name
        for i, j in combinations(range(4), 2):
            assert np.linalg.norm(seen[i] - seen[j]) > 12, (name, colours[i], colours[j])
    assert all(contrast(c, paper) >= 3 for c in colours)
