"""100,000 steps through every reader of JSON, and files that are too long for one record: time and memory."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from analyze_samples import CHAT, SAMPLES, art_row, atif, atif_step, nemo, row, swe, v1_action, v1_seen

pytestmark = pytest.mark.slow

STEPS = 100_000
SCRIPT = """
import re, sys, time
from pathlib import Path
from bipace.analyze import read_file
begun = time.process_time()
try:
    print(sum(len(t.steps) for t in read_file(sys.argv[1]).trajectories))
except ValueError as error:
    print(error)
# The high-water mark of this program: ru_maxrss would begin with that of the process that started it.
peak = int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
print(time.process_time() - begun, peak / 2**20)
"""


def measured(path):
    """What was read, CPU seconds, and GiB at the peak, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(path)], capture_output=True, text=True, timeout=600
    )
    assert not done.stderr, done.stderr[-2000:]
    *told, numbers = done.stdout.strip().splitlines()
    seconds, memory = map(float, numbers.split())
    return " ".join(told), seconds, memory


def lines(path, records):
    with path.open("w") as file:
        file.writelines(json.dumps(record) + "\n" for record in records)
    return path


def verl_rows():
    # One prompt in 64 rollouts, without uids: the texts alone join them.
    for g in range(STEPS // 10):
        text = f"task {g // 64} " + "x" * 300
        for t in range(10):
            yield {"input": text, "output": f"<action>go {g} {t}</action>", "score": 1.0, "step": 1}
            text += f"\ngo {g} {t}\nroom {t}"


def spans():
    for i in range(STEPS):
        message = {"role": "assistant", "content": f"answer {i}"}
        yield {"id": f"o{i}", "traceId": f"t{i // 20}", "type": "GENERATION", "startTime": f"{i % 20:02}",
               "input": [{"role": "user", "content": f"room {i} " + "x" * 300}],
               "output": message}  # fmt: skip


def events():
    for i in range(STEPS):
        yield v1_action(f"a{i}", f"r{i}", f"ls {i}")
        yield v1_seen(f"a{i}", "x" * 300)


BUILT = {
    "nemo_gym": lambda: (nemo(i // 8, i % 8, 1.0) for i in range(STEPS // 2)),
    "openai": lambda: ({"messages": CHAT, "reward": 1.0, "task_id": i // 8} for i in range(STEPS // 2)),
    "inspect": lambda: ({**SAMPLES["inspect"][0], "id": i // 8, "epoch": i % 8} for i in range(STEPS // 2)),
    "tau_bench": lambda: ({**SAMPLES["tau_bench"][0], "trial": i} for i in range(STEPS // 2)),
    "verifiers_traces": lambda: (SAMPLES["verifiers_traces"][i % 2] for i in range(STEPS // 2)),
    "art": lambda: (art_row(i // 8, i % 8, 1.0, "4") for i in range(STEPS // 2)),
    "rows": lambda: (row(f"t{i // 80}", f"r{i // 10}", i % 10, float(i // 10 % 2)) for i in range(STEPS)),
    "verl": verl_rows,
    "langfuse": spans,
    "openhands": events,
    "swe_agent": lambda: [swe([(f"ls {i}", "x" * 300) for i in range(STEPS)])],
    "atif": lambda: [atif("s", [atif_step(i + 1, ("user", "agent")[i % 2], f"text {i} " + "x" * 300)
                                for i in range(2 * STEPS)])],
}  # fmt: skip


@pytest.mark.parametrize("name", list(BUILT))
def test_a_hundred_thousand_steps_stay_within_a_gigabyte(tmp_path, name):
    told, seconds, memory = measured(lines(tmp_path / "x.jsonl", BUILT[name]()))
    assert told == str(STEPS)
    assert memory <= 1.0
    assert seconds <= 40


@pytest.mark.parametrize("opening", ['{"messages": "', '["'])
def test_a_line_of_200_megabytes_ends_in_a_sentence(tmp_path, opening):
    path = tmp_path / "x.json"
    with path.open("w") as file:
        file.write(opening)
        for _ in range(200):
            file.write("x" * 1_000_000)
        file.write('"}' if opening.startswith("{") else '"]')
    told, seconds, memory = measured(path)
    assert "a record of more than 96,000,000 characters" in told
    assert memory <= 1.0
    assert seconds <= 40


def test_a_list_of_200_megabytes_on_one_line_is_streamed(tmp_path):
    path = tmp_path / "x.json"
    with path.open("w") as file:
        record = json.dumps({"messages": [*CHAT, {"role": "user", "content": "x" * 100_000}], "reward": 1.0})
        file.write("[" + ",".join([record] * 2000) + "]")
    told, seconds, memory = measured(path)
    assert told == "4000"
    assert memory <= 1.0
    assert seconds <= 40
