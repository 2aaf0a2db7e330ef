"""Reader of Inspect logs, `.json` and `.eval` (inspect_ai: log/_log.py, scorer/_metric.py)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from bipace.analyze.fields import cause, first, mapped, mappings, named
from bipace.analyze.messages import message_steps
from bipace.analyze.readers.base import failure
from bipace.analyze.records import LoggedTrajectory, Reading, as_number

__all__ = ["is_inspect", "read_inspect"]

_VALUES = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0, "yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}
_ATTACHED = "attachment://"


def is_inspect(record: object) -> bool:
    """A sample: {id, epoch, input, target, messages, ...}."""
    return isinstance(record, Mapping) and {"id", "epoch", "input"} <= set(record) and (
        "messages" in record or "output" in record or "scores" in record
    )  # fmt: skip


def read_inspect(where: str, record: Mapping[str, Any], reading: Reading) -> Iterator[LoggedTrajectory]:
    """The prompt group is a sample of a task, the member its epoch.

    The reward is the first score that is a value.

    Values are numbers as Inspect reads them: C 1, P 0.5, I and N 0, yes and no. A sample with an error, or
    without any score where the log's others have some, is out. Attached texts are put back into the messages.
    """
    attached = mapped(record.get("attachments"), "attachments")
    messages = [_prompted(_resolved(m, attached)) for m in mappings(record.get("messages"), "messages")]
    for message in reversed(messages):
        if message.get("role") == "assistant":
            message["finish_reason"] = first(record, ("output.choices.0.stop_reason", "output.stop_reason"))
            break
    scorer, reward, others = _score(record)
    context, steps = message_steps(messages, reward)
    run = mapped(reading.beside.get("eval"), "eval")
    task = " ".join(part for part in (named(run, ("task", "task_id")), f"sample {record['id']}") if part)
    graded = scorer or not isinstance(record.get("scores"), Mapping)
    out = failure(record) or ("" if steps else "no answer of a model" if record.get("error") else "")
    if not steps and not out:
        reading.skip(where, "messages: no answer of a model, so no step")
        return
    notes = [f"reward = score {scorer}"] if scorer else []
    notes += [f"other scores: {', '.join(others)}"] if others else []
    limit = named(record, ("limit.type",))
    notes += [f"ended by its limit of {limit}"] if limit else []
    yield LoggedTrajectory(
        task=task,
        name=f"sample {record['id']}, epoch {record['epoch']}",
        steps=steps,
        context=context,
        where=where,
        out=out or ("" if graded else cause("grader", "no score that is a value")),
        ids=tuple(i for i in (named(record, ("uuid",)), str(record["id"])) if i),
        notes=tuple(notes),
    )


def _score(record: Mapping[str, Any]) -> tuple[str, float | None, list[str]]:
    """Name and value of the first score that is a number, and the names of the others."""
    scores = record.get("scores")
    if scores is None and isinstance(record.get("score"), Mapping):
        scores = {"score": record["score"]}
    values: dict[str, float] = {}
    for name, score in mapped(scores, "scores").items():
        value = _value(score.get("value") if isinstance(score, Mapping) else score)
        if value is not None and value == value:
            values[str(name)] = value
    chosen = next(iter(values), "")
    return chosen, values.get(chosen), [name for name in values if name != chosen]


def _value(value: object) -> float | None:
    if isinstance(value, str) and value in _VALUES:
        return _VALUES[value]
    if isinstance(value, str) and value.lower() in _VALUES:
        return _VALUES[value.lower()]
    if isinstance(value, Mapping) and len(value) == 1:
        return _value(next(iter(value.values())))
    return as_number(value)


def _prompted(message: dict[str, Any]) -> dict[str, Any]:
    """An answer that the sample's input already held was not given by the agent."""
    if message.get("role") == "assistant" and message.get("source") == "input":
        message["role"] = "user"
    return message


def _resolved(value: Any, attached: Mapping[str, Any]) -> Any:
    if isinstance(value, Mapping):
        return {k: _resolved(v, attached) for k, v in value.items()}
    if isinstance(value, list):
        return [_resolved(v, attached) for v in value]
    if isinstance(value, str) and value.startswith(_ATTACHED):
        return attached.get(value.removeprefix(_ATTACHED), value)
    return value
