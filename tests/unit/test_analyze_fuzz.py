"""Damaged records of every format: the worst that may happen is one clear sentence, never a traceback.

`BIPACE_FUZZ=100000 pytest tests/unit/test_analyze_fuzz.py` tries that many inputs; `make fuzz-readers` does
the same.
"""

from __future__ import annotations

import copy
import json
import os
import random
from typing import Any

import pytest

from analyze_samples import SAMPLES
from bipace.analyze.formats import FORMATS
from bipace.analyze.reading import read_file, read_files
from bipace.analyze.table import build_table

INPUTS = int(os.environ.get("BIPACE_FUZZ", "2100"))
UGLY: tuple[Any, ...] = (
    None, True, False, 0, -1, 3.5, 10**400, float("nan"), float("inf"), "", "x", "NaN", "\ud800", "\0", "[{",
    "{}",
    "attachment://", "<tool_call>{", "1e999", [], [None], [[]], [1, "a", {}], {}, {"": None}, {"role": None},
    {"a": {"b": []}}, {"type": "text"}, [{"type": 1}], [{"role": "assistant"}], {"0": "x", "1": "y"},
    "9" * 5000,
)  # fmt: skip


def damaged(value: Any, rng: random.Random) -> Any:
    """The value with one or a few places replaced, removed, doubled or moved."""
    value = copy.deepcopy(value)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        places = list(walk(value))
        if not places:
            break
        holder, key = rng.choice(places)
        how = rng.random()
        if how < 0.6:
            holder[key] = copy.deepcopy(rng.choice(UGLY))
        elif how < 0.75:
            del holder[key]
        elif how < 0.9:
            other, place = rng.choice(places)
            if usable(other, place):
                holder[key] = copy.deepcopy(other[place])
        elif isinstance(holder, list):
            holder.insert(key, copy.deepcopy(holder[key]))
        else:
            holder[rng.choice(("id", "role", "error", "step", key * 2))] = holder.pop(key)
    return value


def walk(value: Any):
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in list(items):
        yield value, key
        yield from walk(inner)


def usable(holder: Any, key: Any) -> bool:
    return key in holder if isinstance(holder, dict) else key < len(holder)


def written(records: list[Any], rng: random.Random) -> str:
    kind = rng.random()
    if kind < 0.5:
        text = "".join(json.dumps(record) + "\n" for record in records)
    elif kind < 0.8:
        text = json.dumps(records, indent=rng.choice((None, 1)))
    else:
        text = json.dumps(records[0] if records else None)
    if rng.random() < 0.15:
        cut = rng.randrange(len(text) + 1)
        text = (
            text[:cut]
            + rng.choice(("", "\0", "]", "}", '"', "\\", "[" * 2000, "é"))
            + text[cut + rng.randrange(3) :]
        )
    return text


def attempt(path, **options):
    """ "read", or "" for a refusal in one sentence that names the file or the option, or what was unclear."""
    try:
        found = read_files([path], **options)
        build_table(found.files)
    except (ValueError, OSError) as error:
        return "" if told(str(error), path) else f"unclear: {error}"
    return "read"


def told(message: str, path) -> bool:
    return len(message) < 3000 and any(word in message for word in (str(path), "rollouts counts", "--map"))


@pytest.mark.parametrize("name", list(SAMPLES))
def test_damaged_records_of_every_format_end_in_a_sentence(tmp_path, name):
    rng = random.Random(f"readers {name}")
    path = tmp_path / "file.jsonl"
    call = tmp_path / "agent-logs" / "episode-0"
    call.mkdir(parents=True)  # terminal-bench keeps its transcript beside the results
    (call / "prompt.txt").write_text("Say hello.")
    (call / "response.txt").write_text("hello")
    read = 0
    for i in range(max(INPUTS // len(SAMPLES), 1)):
        path.write_text(written(damaged(SAMPLES[name], rng), rng), encoding="utf-8", errors="surrogatepass")
        forced = rng.random()
        options = (
            {"format": name}
            if forced < 0.3
            else {"format": rng.choice(list(FORMATS))}
            if forced < 0.4
            else {}
        )
        try:
            outcome = attempt(path, **options)
            assert outcome in ("read", ""), outcome
            read += outcome == "read"
        except Exception as error:
            raise AssertionError(
                f"input {i} of {name} with {options}: {path.read_bytes()[:2000]!r}"
            ) from error
    assert read  # some damage is survived


def test_every_sample_is_read_by_its_own_reader(tmp_path):
    assert set(SAMPLES) == set(FORMATS)
    for name in set(SAMPLES) - {"terminal_bench"}:
        records, path = SAMPLES[name], tmp_path / f"{name}.jsonl"
        path.write_text("".join(json.dumps(record) + "\n" for record in records))
        assert read_file(path).format == name
