"""What three iterations say about the whole run: seconds by part, tokens a second, memory, hours to come.

    python examples/gpu/reckon.py RUN PRESET [KEY=VALUE...]

RUN is the folder of the short run; PRESET and the overrides are those of the long one. The first iteration
warms up (kernels are chosen, memory is reserved) and is left out where there are others.
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path
from typing import Any

from bipace.train.config import Config, load_config


def read(run: Path) -> list[dict[str, Any]]:
    """The lines of a run's metrics.jsonl."""
    lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def mean(lines: list[dict[str, Any]], key: str) -> float | None:
    """The mean over the lines that have the key."""
    values = [line[key] for line in lines if key in line]
    return statistics.mean(values) if values else None


def reckon(lines: list[dict[str, Any]], config: Config) -> str:
    """A table of the parts, and the hours that the configured run will take."""
    steps = [line for line in lines if "timing_s/iteration" in line]
    if not steps:
        raise SystemExit("reckon: the run has no finished iteration; start the script again")
    counted = steps[1:] or steps
    whole = mean(counted, "timing_s/iteration") or 0.0
    parts = {key: mean(counted, key) or 0.0 for key in counted[-1] if key.startswith("timing_s/")}
    said = [f"seconds of an iteration (mean of {len(counted)}):"]
    for key, seconds in sorted(parts.items(), key=lambda part: -part[1]):
        if key not in ("timing_s/iteration", "timing_s/validation"):
            said.append(f"  {key.removeprefix('timing_s/'):<12} {seconds:9.2f}  {seconds / whole:6.1%}")
    said.append(f"  {'all':<12} {whole:9.2f}")
    for key, words in (
        ("perf/tokens_per_s", "tokens a second"),
        ("perf/credit_share", "share of the credit"),
        ("perf/peak_memory_mb", "peak memory of the host, MiB"),
    ):
        value = mean(counted, key)
        if value is not None:
            said.append(f"{words}: {value:,.4g}" if value < 1 else f"{words}: {value:,.0f}")
    validation = mean(lines, "timing_s/validation") or 0.0
    times = config.run.iterations // config.run.validate_every + 1
    hours = (config.run.iterations * whole + times * validation) / 3600
    said.append(
        f"the run: {config.run.iterations} iterations and {times} validations of {validation:.0f} s: about "
        f"{hours:.2g} hours, held-out panels apart"
    )
    return "\n".join(said)


def main() -> None:
    """Print it."""
    if len(sys.argv) < 3:
        raise SystemExit(__doc__)
    run, preset, *overrides = sys.argv[1:]
    print(reckon(read(Path(run)), load_config(Path(preset), overrides)))


if __name__ == "__main__":
    main()
