"""`bipace doctor`: what is installed, what this machine has, which commands would run."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import sys
from pathlib import Path
from typing import Any

from rich.console import Console

from bipace.cli.tables import show_table
from bipace.train.extras import extras as known_extras
from bipace.train.extras import installed
from bipace.train.threads import usable_cores
from bipace.waiting import WAITS_ASLEEP

__all__ = ["examine", "print_health"]

_COMMANDS = {
    "config, recipes, envs, models": "cli",
    "play textcraft": "textcraft",
    "play webshop": "webshop",
    "credit world:NAME": "report",
    "report": "report",
    "analyze": "analyze",
    "train, eval, imitate, study": "train",
    "credit ACTOR, calibrate": "train",
    "actor.lora_rank, models merge": "lora",
    "models fetch": "models",
    "rollout.engine=vllm": "vllm",
}


def examine() -> dict[str, Any]:
    """Versions, extras with what each lacks, devices, disk and memory, and what would run.

    Returns:
        JSON: bipace, python, platform, packages (name -> version or None), extras (name -> missing packages),
        machine, commands (words -> "ready" or what to install), problems (sentences; empty where all is
        well).
    """
    wanted = {extra: names for extra, names in known_extras().items() if extra not in ("dev", "docs")}
    packages = {name: installed(name) for name in sorted({p for names in wanted.values() for p in names})}
    extras = {
        extra: sorted(name for name in names if packages[name] is None) for extra, names in wanted.items()
    }
    machine = _machine()
    commands = {
        words: "ready" if not extras.get(extra, []) else f"pip install 'bipace[{extra}]'"
        for words, extra in _COMMANDS.items()
        if extra in extras
    }
    from bipace import __version__

    return {
        "bipace": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": packages,
        "extras": extras,
        "machine": machine,
        "commands": commands,
        "problems": _problems(machine),
    }


def print_health(found: dict[str, Any]) -> None:
    """Show what `examine` found."""
    console, machine = Console(), found["machine"]
    print(f"bipace {found['bipace']}, Python {found['python']}, {found['platform']}")
    cuda = "no CUDA device" if not machine["cuda"] else f"CUDA: {', '.join(machine['cuda'])}"
    memory = (
        "" if machine["memory_free_gb"] is None else f", {machine['memory_free_gb']:.1f} GB of memory free"
    )
    print(f"{machine['cores']} cores{memory}, {machine['disk_free_gb']:.0f} GB free here; {cuda}")
    rows = [
        (extra, "complete" if not missing else f"lacks {', '.join(missing)}")
        for extra, missing in found["extras"].items()
    ]
    show_table(("extra", "state"), rows, console)
    show_table(("commands", "state"), list(found["commands"].items()), console)
    for problem in found["problems"]:
        print(f"problem: {problem}")
    if not found["problems"]:
        print("No problem found.")


def _machine() -> dict[str, Any]:
    memory = None
    if hasattr(os, "sysconf") and "SC_AVPHYS_PAGES" in os.sysconf_names:
        memory = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e9
    return {
        "cores": usable_cores(),
        "threads_wait_asleep": WAITS_ASLEEP,
        "memory_free_gb": memory,
        "disk_free_gb": shutil.disk_usage(Path.cwd()).free / 1e9,
        "cuda": _cuda(),
    }


def _cuda() -> list[str]:
    if importlib.util.find_spec("torch") is None:
        return []
    import torch

    if not torch.cuda.is_available():
        return []
    return [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]


def _problems(machine: dict[str, Any]) -> list[str]:
    found: list[str] = []
    if not (3, 10) <= sys.version_info < (3, 14):
        found.append(f"Python {platform.python_version()} is untested; use 3.10 to 3.13")
    if not machine["threads_wait_asleep"]:
        found.append("OMP_WAIT_POLICY is not PASSIVE: threads spin while they wait; unset it")
    if machine["disk_free_gb"] < 1:
        found.append(f"only {machine['disk_free_gb']:.2f} GB free on the disk here")
    if not os.access(Path.cwd(), os.W_OK):
        found.append(
            f"this folder cannot be written to; runs go to {Path.cwd() / 'runs'} unless --out says otherwise"
        )
    return found
