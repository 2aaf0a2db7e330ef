"""Readers of observability spans: Langfuse's traces and observations, OpenInference (Phoenix, OTLP).

Sources: Langfuse's public API and exports (TraceWithFullDetails, Observation, Score), OpenInference's
semantic conventions (spec/semantic_conventions.md, spec/llm_spans.md). A model call is a span of kind LLM or
an observation of type GENERATION; a trace is a trajectory, and an agent called inside of another agent one of
its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bipace.analyze.fields import BadField, cause, first, mapped, mappings, named
from bipace.analyze.messages import as_text, message_steps, on_last
from bipace.analyze.readers.base import OUTCOMES, REWARDS, mapping_records
from bipace.analyze.readers.otel import messages_of, nested
from bipace.analyze.records import LoggedStep, LoggedTrajectory, Reading, as_number
from bipace.analyze.source import Located

__all__ = ["is_langfuse", "is_openinference", "read_langfuse", "read_openinference"]


@dataclass(frozen=True)
class Span:
    """One span, whatever wrote it.

    Attributes:
        trace: the trace it belongs to.
        id: its own id.
        parent: the span that opened it.
        kind: LLM, AGENT or another.
        name: as shown.
        start: when it began, as text that sorts.
        read: what a model call was given.
        said: what it answered.
        error: why it failed, or "".
    """

    trace: str
    id: str
    parent: str
    kind: str
    name: str
    start: str
    read: Sequence[Mapping[str, Any]] = ()
    said: Mapping[str, Any] | None = None
    error: str = ""


@dataclass
class Trace:
    """The spans of one trace and what is said about the whole: task, rewards, place in the file."""

    where: str
    spans: list[Span]
    about: dict[str, Any]
    scores: dict[str, float]


def is_langfuse(record: object) -> bool:
    """A trace with its observations, or a single observation with its trace id."""
    if not isinstance(record, Mapping):
        return False
    if isinstance(record.get("observations"), list):
        return all(isinstance(o, Mapping) for o in record["observations"][:3]) and bool(
            {"id", "input", "scores"} & set(record)
        )
    typed = str(record.get("type", "")).upper() in ("GENERATION", "SPAN", "EVENT", "AGENT", "TOOL", "CHAIN")
    return typed and bool({"traceId", "trace_id"} & set(record))


def is_openinference(record: object) -> bool:
    """A span with OpenInference's attributes, or an OTLP export of such."""
    if not isinstance(record, Mapping):
        return False
    if "resourceSpans" in record or "resource_spans" in record:
        return True
    flat = any(str(k).startswith("attributes.openinference") for k in record)
    attributes = record.get("attributes")
    keys = attributes if isinstance(attributes, Mapping) else ()
    return flat or any(str(k).startswith(("openinference", "llm")) for k in keys)


def read_langfuse(found: Iterable[Located], reading: Reading) -> Iterator[LoggedTrajectory]:
    """The prompt group is the task in the metadata or dataset item, else the trace's first prompt.

    Rewards are scores.

    Of several scores the one named reward, score, success or correct counts, else the first; the others are
    named.
    """
    traces: dict[str, Trace] = {}
    for where, record in mapping_records(found, reading):
        try:
            whole = isinstance(record.get("observations"), list)
            identity = named(record, ("id",) if whole else ("traceId", "trace_id"))
            trace = traces.setdefault(identity, Trace(where, [], {}, {}))
            if whole:
                trace.about |= {k: v for k, v in record.items() if k != "observations"}
                trace.scores |= _scores(record.get("scores"))
            for observation in record["observations"] if whole else [record]:
                trace.spans.append(_observation(mapped(observation, "observations"), identity))
                trace.scores |= _scores(mapped(observation, "observations").get("scores"))
        except BadField as error:
            reading.skip(where, str(error))
    yield from _trajectories(traces, reading)


def read_openinference(found: Iterable[Located], reading: Reading) -> Iterator[LoggedTrajectory]:
    """Spans of kind LLM are steps, in the order of their start; annotations are scores."""
    traces: dict[str, Trace] = {}
    for where, record in mapping_records(found, reading):
        try:
            for span, attributes in nested(record):
                trace = traces.setdefault(span["trace"], Trace(where, [], {}, {}))
                trace.spans.append(_span(span, attributes))
                root = not span["parent"]
                metadata = _decoded(attributes.get("metadata"))
                trace.about |= metadata if isinstance(metadata, dict) and (root or not trace.about) else {}
                trace.scores |= _annotations(attributes)
        except BadField as error:
            reading.skip(where, str(error))
    yield from _trajectories(traces, reading)


def _trajectories(traces: Mapping[str, Trace], reading: Reading) -> Iterator[LoggedTrajectory]:
    for identity, trace in traces.items():
        calls = [s for s in trace.spans if s.kind == "LLM" and (s.said is not None or s.error)]
        if not calls:
            reading.skip(trace.where, f"trace {identity}: no model call among its {len(trace.spans)} spans")
            continue
        agents = _agents(trace.spans, calls)
        for agent in dict.fromkeys(agents[call.id] for call in calls):
            own = sorted((c for c in calls if agents[c.id] == agent), key=lambda c: c.start)
            try:
                yield _trajectory(identity, trace, agent, own)
            except BadField as error:
                reading.skip(trace.where, str(error))


def _trajectory(identity: str, trace: Trace, agent: str, calls: Sequence[Span]) -> LoggedTrajectory:
    steps = [step for call in calls if call.said is not None and (step := _step(call))]
    name, reward = _chosen(trace.scores)
    context = next((c for call in calls if (c := message_steps([*call.read], None)[0])), "")
    places = (
        "metadata.task_id",
        "metadata.task",
        "metadata.instance_id",
        "task_id",
        "task",
        "datasetItemId",
        "dataset_item_id",
    )
    opening = as_text(steps[0].observation) if steps else ""
    rewards = on_last(None if agent else reward, len(steps))
    last_error = calls[-1].error
    others = [n for n in trace.scores if n != name]
    notes = [f"reward = score {name}"] if name else []
    notes += [f"other scores: {', '.join(others)}"] if others else []
    return LoggedTrajectory(
        task=(opening if agent else "")
        or named(trace.about, places)
        or opening
        or as_text(trace.about.get("input")),
        name=f"{identity} / {agent}" if agent else identity,
        steps=tuple(replace(s, reward=r) for s, r in zip(steps, rewards, strict=True)),
        context=context,
        outcome=next((trace.scores[k] for k in OUTCOMES if k in trace.scores), None),
        where=trace.where,
        role=agent.split(" ")[0],
        out=last_error or ("" if steps else "no answer of a model"),
        parent=identity if agent else "",
        ids=(
            identity,
            *((named(trace.about, ("sessionId", "session_id")),) if trace.about.get("sessionId") else ()),
        ),
        notes=tuple(notes),
    )


def _step(call: Span) -> LoggedStep | None:
    """The answer of a model call with what it read since the answer before, which its input repeats."""
    before = [i for i, m in enumerate(call.read) if m.get("role") in ("assistant", "model", "ai")]
    since = [*call.read][before[-1] if before else 0 :]
    found = message_steps([*since, {**(call.said or {}), "role": "assistant"}], None)[1]
    return found[-1] if found else None


def _agents(spans: Sequence[Span], calls: Sequence[Span]) -> dict[str, str]:
    """Span id of a model call -> the agent inside of another agent that made it, "" for the outermost."""
    by_id = {span.id: span for span in spans}
    found: dict[str, str] = {}
    for call in calls:
        chain: list[Span] = []
        at, left = by_id.get(call.parent), len(spans)
        while at is not None and left:
            chain += [at] if at.kind == "AGENT" else []
            at, left = by_id.get(at.parent), left - 1
        found[call.id] = f"{chain[0].name} {chain[0].id}" if len(chain) > 1 else ""
    return found


def _observation(record: Mapping[str, Any], trace: str) -> Span:
    kind = str(record.get("type", "")).upper()
    failed = str(record.get("level", "")).upper() == "ERROR"
    said = _answer(_decoded(record.get("output")))
    return Span(
        trace=trace,
        id=named(record, ("id",)),
        parent=named(record, ("parentObservationId", "parent_observation_id")),
        kind="LLM" if kind == "GENERATION" else kind,
        name=named(record, ("name",)),
        start=named(record, ("startTime", "start_time")),
        read=_given(_decoded(record.get("input"))) if kind == "GENERATION" else (),
        said=said if kind == "GENERATION" else None,
        error=cause("error", first(record, ("statusMessage", "status_message"))) if failed else "",
    )


def _span(span: Mapping[str, str], attributes: Mapping[str, Any]) -> Span:
    kind = str(first(attributes, ("openinference.span.kind",)) or "").upper()
    read = messages_of(first(attributes, ("llm.input_messages",)))
    said = messages_of(first(attributes, ("llm.output_messages",)))
    answer: Mapping[str, Any] | None = (
        said[-1] if said else _answer(_decoded(first(attributes, ("output.value",))))
    )
    return Span(
        trace=span["trace"],
        id=span["id"],
        parent=span["parent"],
        kind=kind,
        name=span["name"],
        start=span["start"],
        read=(read or _given(_decoded(first(attributes, ("input.value",))))) if kind == "LLM" else (),
        said=answer if kind == "LLM" else None,
        error=cause("error", span["message"]) if "ERROR" in span["status"] else "",
    )


def _given(value: Any) -> list[Mapping[str, Any]]:
    """The messages of a model call's input: a list, `{messages}`, or text."""
    if isinstance(value, Mapping):
        value = first(value, ("messages", "input", "prompt"))
    if isinstance(value, list) and all(isinstance(m, Mapping) for m in value):
        return [{"role": "user", **m} for m in value]
    return [] if value in (None, "") else [{"role": "user", "content": value}]


def _answer(value: Any) -> Mapping[str, Any] | None:
    """The message of a model call's output: a message, a choice, a response, a list with one, or text."""
    if isinstance(value, list):
        value = value[-1] if value else None
    if isinstance(value, Mapping):
        choice = first(value, ("choices.0", "message"))
        if isinstance(choice, Mapping):
            inner = choice.get("message")
            return {
                **(inner if isinstance(inner, Mapping) else choice),
                "finish_reason": choice.get("finish_reason"),
            }
        return value if {"content", "tool_calls", "role"} & set(value) else {"content": value}
    return None if value in (None, "") else {"content": as_text(value)}


def _scores(scores: object) -> dict[str, float]:
    found = mappings(scores, "scores") if isinstance(scores, list) else []
    values = {named(s, ("name",)) or "score": as_number(s.get("value")) for s in found}
    return {name: value for name, value in values.items() if value is not None}


def _annotations(attributes: Mapping[str, Any]) -> dict[str, float]:
    found: dict[str, float] = {}
    for place in ("annotations", "trace.annotations", "evaluations"):
        listed = first(attributes, (place,))
        for item in listed if isinstance(listed, list) else ():
            inner = first(item, ("annotation", "evaluation")) if isinstance(item, Mapping) else None
            score = as_number(inner.get("score")) if isinstance(inner, Mapping) else None
            if isinstance(inner, Mapping) and score is not None:
                found[named(inner, ("name",)) or "score"] = score
    return found


def _chosen(scores: Mapping[str, float]) -> tuple[str, float | None]:
    usual = (*REWARDS, *OUTCOMES, "correctness")
    name = next((n for n in usual if n in scores), next(iter(scores), ""))
    return name, scores.get(name)


def _decoded(value: Any) -> Any:
    """JSON text as its value: exports keep inputs and outputs as text."""
    if isinstance(value, str) and value[:1] in ("{", "["):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value
