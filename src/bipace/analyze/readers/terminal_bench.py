"""Readers of run folders of terminal-bench (harness/models.py: TrialResults) and Harbor (models/trial).

Both keep the transcript and the verdict in different files. Harbor's transcript is an ATIF document; its
verdict is read here as what stands beside it. Terminal-bench's agents log one folder a model call,
`agent-logs/episode-N`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bipace.analyze.fields import cause, first, mapped, named
from bipace.analyze.messages import action_of, on_last
from bipace.analyze.records import LoggedStep, LoggedTrajectory, Reading, as_number

__all__ = ["harbor_verdict", "is_terminal_bench", "read_terminal_bench"]

# Ends that are the agent's own: its rollout counts as it was graded.
_OWN_ENDS = (
    "unset", "none", "context_length_exceeded", "output_length_exceeded", "parse_error",
    "fatal_llm_parse_error",
    "ContextWindowExceededError", "OutputTokenExceededError", "ContextLengthExceededError",
    "OutputLengthExceededError",
    "NonZeroAgentExitCodeError", "AgentSafetyRefusalError", "ContentPolicyViolationError",
)  # fmt: skip
_MOST_CHARACTERS = 8 << 20


def is_terminal_bench(record: object) -> bool:
    """The results of a trial: {trial_name, task_id, is_resolved, failure_mode}."""
    return isinstance(record, Mapping) and {"trial_name", "task_id"} <= set(record) and (
        "is_resolved" in record or "failure_mode" in record
    )  # fmt: skip


def read_terminal_bench(
    where: str, record: Mapping[str, Any], reading: Reading
) -> Iterator[LoggedTrajectory]:
    """The prompt group is the task, the reward whether it is resolved; a model call's folder is one step.

    What the agent read is the call's prompt, what it did are the keystrokes of its answer. A time-out, an
    error of the harness and a null result put the trial out.
    """
    task, name = named(record, ("task_id",)), named(record, ("trial_name",))
    resolved = record.get("is_resolved")
    mode = str(record.get("failure_mode") or "none")
    out = (
        ""
        if mode in _OWN_ENDS
        else cause("time-out" if "timeout" in mode else "error", mode.replace("_", " "))
    )
    out = out or ("" if isinstance(resolved, bool) else cause("null result"))
    folder = _logs(Path(reading.file).parent, task, name)
    steps = _episodes(folder, as_number(resolved), reading) if folder else ()
    if not steps and not out:
        reading.skip(
            where, f"{name}: no agent-logs/episode-N with a prompt and a response beside the results"
        )
        return
    yield LoggedTrajectory(task, name, steps, where=where, outcome=as_number(resolved), out=out, ids=(name,))


def harbor_verdict(folder: Path) -> dict[str, Any]:
    """{task, name, reward, out} of a Harbor trial, from `result.json` and the verifier's own file.

    The rewards of `result.json` come first, then `verifier/reward.json`, then `verifier/reward.txt`. Of
    several named rewards the one named reward counts, else the first. An exception that is not the agent's
    own end puts it out.
    """
    result = _json(folder / "result.json")
    rewards = first(result, ("verifier_result.rewards",)) or _json(folder / "verifier" / "reward.json")
    reward = as_number(rewards)
    if isinstance(rewards, Mapping):
        reward = as_number(rewards.get("reward", next(iter(rewards.values()), None)))
    if reward is None:
        reward = as_number(_text(folder / "verifier" / "reward.txt").strip() or None)
    kind = named(result, ("exception_info.exception_type",))
    if not kind and not result:
        kind = next(iter(_text(folder / "exception.txt").strip().splitlines()[-1:]), "").partition(":")[0]
    late = "timeout" in kind.lower()
    out = cause("time-out" if late else "error", kind) if kind and kind not in _OWN_ENDS else ""
    config = mapped(_json(folder / "config.json"), "config.json")
    task = named(result, ("task_name", "task_id")) or Path(named(config, ("task.path", "task.name"))).name
    return {
        "task": task or folder.name.rsplit("__", 1)[0],
        "name": named(result, ("trial_name",)) or folder.name,
        "reward": reward,
        "out": out or ("" if reward is not None else cause("grader", "no reward")),
    }


def _logs(beside: Path, task: str, name: str) -> Path | None:
    """The trial's `agent-logs`, beside its own results or below a run's."""
    below = [
        beside / part for part in (Path(task) / name, Path(name)) if part.parts and ".." not in part.parts
    ]
    return next((f / "agent-logs" for f in (beside, *below) if (f / "agent-logs").is_dir()), None)


def _episodes(folder: Path, reward: float | None, reading: Reading) -> tuple[LoggedStep, ...]:
    found: list[tuple[str, str]] = []
    numbered = [(int(m[1]), f) for f in folder.iterdir() if (m := re.fullmatch(r"episode-(\d{1,9})", f.name))]
    for _, episode in sorted(numbered):
        answers = [_text(episode / name) for name in ("response.txt", "response.json")]
        response = next((a for a in answers if a), "")
        if response:
            found.append((_text(episode / "prompt.txt"), response))
        else:
            reading.folded["calls of the model without a response"] += 1
    rewards = on_last(reward, len(found))
    return tuple(LoggedStep(p, r, *action_of(r), value) for (p, r), value in zip(found, rewards, strict=True))


def _text(path: Path) -> str:
    if not path.is_file():
        return ""
    with path.open(encoding="utf-8", errors="replace") as file:
        return file.read(_MOST_CHARACTERS)


def _json(path: Path) -> Mapping[str, Any]:
    try:
        value = json.loads(_text(path) or "null")
    except (ValueError, RecursionError):
        return {}
    if isinstance(value, (int, float)):
        return {"reward": value}
    return value if isinstance(value, Mapping) else {}
