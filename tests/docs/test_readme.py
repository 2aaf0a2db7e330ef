"""README.md's first screen, its links, and README.zh-CN.md beside it."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
ENGLISH, CHINESE = ((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "README.zh-CN.md"))


def _code(page):
    return re.findall(r"^```\w*\n.*?^```$", page, re.MULTILINE | re.DOTALL)


def _outside(page):
    return re.sub(r"^```\w*\n.*?^```$", "", page, flags=re.MULTILINE | re.DOTALL)


def test_both_have_the_same_headings_commands_and_pictures():
    levels = [re.findall(r"^#+(?= )", _outside(page), re.MULTILINE) for page in (ENGLISH, CHINESE)]
    assert levels[0] == levels[1]
    assert _code(ENGLISH) == _code(CHINESE)
    pictures = [re.findall(r"!\[[^\]]*\]\(([^)]+)\)", page) for page in (ENGLISH, CHINESE)]
    assert pictures[0] == pictures[1]


def test_both_name_the_same_numbers_and_pages():
    for pattern in (r"\d[\d.,]* (?:±|%)", r"\]\((docs/[^)]+)\)"):
        english, chinese = (set(re.findall(pattern, page)) for page in (ENGLISH, CHINESE))
        assert english == chinese


def test_the_first_screen_is_command_picture_sentence_and_doors():
    first = "\n".join(ENGLISH.splitlines()[:30])
    parts = [
        first.index(part)
        for part in ("make demo", "![", "bipace says which", "## Who it is for", "docs/paths/")
    ]
    assert parts == sorted(parts)
    assert "%" not in first


def test_every_link_leads_somewhere():
    for page in (ENGLISH, CHINESE):
        for target in re.findall(r"\]\((?!https?://|#)([^)#]+)", page):
            assert (ROOT / target).exists(), target
