"""The four ways in are followed to the letter, in an empty folder."""

from pathlib import Path

import pytest
from executed import blocks, follow

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["rollouts", "environment", "estimator", "scale"])
def test_a_path_can_be_followed(name, tmp_path):
    followed = follow(DOCS / "paths" / f"{name}.md", tmp_path)
    assert sum(block.kind == "run" for block in followed) >= 4
    made = {
        "rollouts": ["credit.html", "from-notebook.html", "findings.json", "steps.csv"],
        "environment": ["report/report.html", "episodes.jsonl", "actor/config.json"],
        "estimator": ["runs/mine/report/report.html"],
        "scale": ["merged/config.json"],
    }[name]
    assert all((tmp_path / file).stat().st_size for file in made)


PAGE = """
```python title="part.py"
x = 1
```
<!-- in CI: 100 -> 2 -->
```python
import part; print(100 * part.x)
```
```bash title="needs a GPU"
false
```
```text
what it prints
```
"""


def test_a_page_is_files_commands_and_what_is_only_shown():
    found = blocks(PAGE)
    assert [block.kind for block in found] == ["file", "run", "shown", "shown"]
    assert found[1].text == "import part; print(2 * part.x)\n"
    with pytest.raises(ValueError, match=r"line 5: '100' is not in the fence"):
        blocks(PAGE.replace("print(100", "print(99"))


def test_a_command_that_fails_fails_the_page(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("```bash\ntrue\nfalse\ntrue\n```\n")
    with pytest.raises(AssertionError, match=r"page.md line 1"):
        follow(page, tmp_path)


def test_every_page_opens_and_closes_its_fences():
    for page in DOCS.rglob("*.md"):
        fences = [line for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("```")]
        assert len(fences) % 2 == 0, page
