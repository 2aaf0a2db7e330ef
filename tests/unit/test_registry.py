"""Suites by name, by module and by file."""

from __future__ import annotations

import pytest

from bipace.envs.registry import get_suite
from bipace.envs.textcraft import TextCraftSuite, suite


def test_suite_is_found_by_name_by_module_and_by_file(tmp_path):
    own = tmp_path / "own.py"
    own.write_text(
        "from bipace.envs.textcraft import TextCraftSuite\nmine = TextCraftSuite(name='mine')\nnumber = 3\n"
    )
    assert get_suite("textcraft") is suite()
    assert isinstance(get_suite("bipace.envs.textcraft:TextCraftSuite"), TextCraftSuite)
    assert get_suite(f"{own}:mine").name == "mine"
    with pytest.raises(ValueError, match="gives a int, not a Suite"):
        get_suite(f"{own}:number")
    with pytest.raises(ValueError, match="no attribute 'yours'"):
        get_suite(f"{own}:yours")


@pytest.mark.parametrize(
    ("name", "message"),
    [("textcarft", "did you mean 'textcraft'"), ("", "Known: textcraft"),
     ("no_such_module:x", "no module 'no_such_module'"),
     ("absent.py:x", "no file 'absent.py'")],
)  # fmt: skip
def test_unknown_suite_is_refused_with_the_way_out(name, message):
    with pytest.raises(ValueError, match=message):
        get_suite(name)
