"""README.md's first screen, its links, README.zh-CN.md beside it, and the form of links to other hosts."""

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


# Links inside of the documentation are `make docs`'s to follow. Those to other hosts are not followed, so
# that no test needs a network: they are held to forms that stay, which are an arXiv number, a repository, an
# issue, two pages.
STEADY = (
    r"https://arxiv\.org/abs/\d{4}\.\d{4,5}",
    r"https://github\.com/[\w-]+/[\w.-]+(/(issues|pull)/\d+)?",
    r"https://(pytorch\.org/get-started/locally/|download\.pytorch\.org/whl/cpu)",
    r"https://example\.org/.*",  # made up, in tests
)
NO_PAGE = r"http://(127\.0\.0\.1|www\.w3\.org/2000/svg).*"  # of this machine; a name that no one opens


def _texts():
    places = [*ROOT.glob("*.*"), *(p for folder in ("src", "docs", "examples", "benchmarks", "tests")
                                   for p in (ROOT / folder).rglob("*.*"))]  # fmt: skip
    for path in sorted(places):
        if path.suffix in (".md", ".py", ".toml", ".yml", ".cff", ".sh") and path != Path(__file__):
            yield str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")


def test_links_to_other_hosts_are_of_a_form_that_stays():
    found = {
        (name, link.rstrip(".,;:"))
        for name, text in _texts()
        for link in re.findall(r"https?://[\w.-]+[^\s)\]`\"'<>\\{]*", text)
    }
    assert len(found) > 5
    odd = [pair for pair in found if not any(re.fullmatch(form, pair[1]) for form in (*STEADY, NO_PAGE))]
    assert not odd


def test_papers_are_named_by_whole_arxiv_numbers():
    found = {(name, number) for name, text in _texts() for number in re.findall(r"arXiv:?\s(\S*\d)", text)}
    assert len(found) > 10
    assert not [pair for pair in found if not re.match(r"\d{4}\.\d{4,5}(?!\d)", pair[1])]
