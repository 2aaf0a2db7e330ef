"""Trial: `bipace analyze` learns a format of one's own by one function and one line of its table."""

import json

import pytest

pytest.importorskip("sklearn", reason="scikit-learn (the extra `analyze`) is absent")

from bipace.analyze import FORMATS, analyze
from bipace.core.plugins import load_attribute

OWN = '''
from bipace.analyze.formats import FORMATS, Format
from bipace.analyze.readers.base import each
from bipace.analyze.records import LoggedStep, LoggedTrajectory


def read_mine(where, record, reading):
    """{quest, hero, log: [[saw, did], ...], gold}: the gold is paid at the end."""
    paid = [0.0] * (len(record["log"]) - 1) + [record["gold"]]
    steps = [LoggedStep(s, d, d, "text", r) for (s, d), r in zip(record["log"], paid)]
    yield LoggedTrajectory(record["quest"], record["hero"], tuple(steps), where=where)


FORMATS["mine"] = Format(lambda r: "quest" in r, each(read_mine), "quests {quest, hero, log, gold}")
'''


def test_a_reader_is_one_function_and_one_line(tmp_path, monkeypatch):
    own = tmp_path / "reader.py"
    own.write_text(OWN)
    monkeypatch.setattr("bipace.analyze.formats.FORMATS", FORMATS)
    monkeypatch.setitem(FORMATS, "mine", None)  # so that the line below is undone at the end
    load_attribute(f"{own}:read_mine", "reader")
    quests = [
        {"quest": "cave", "hero": str(i), "log": [["dark", "light"], ["bear", way]], "gold": gold}
        for i, (way, gold) in enumerate([("fight", 0.0), ("run", 1.0), ("run", 1.0)])
    ]
    file = tmp_path / "quests.jsonl"
    file.write_text("".join(json.dumps(quest) + "\n" for quest in quests) + '{"else": 1}\n')
    analysis = analyze(file)
    (reading,) = analysis.readings
    assert reading.format == "mine"
    assert len(reading.problems) == 1  # the line that is no quest
    assert [s.action for s in analysis.table.steps] == ["light", "fight", "light", "run", "light", "run"]
    assert analysis.table.outcome.tolist() == [0.0, 1.0, 1.0]
    assert analysis.credits["gigpo"].values[1] < 0 < analysis.credits["gigpo"].values[3]
