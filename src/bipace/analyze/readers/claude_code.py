"""Reader of Claude Code's session files.

One line an event {type, uuid, sessionId, message, isSidechain, ...}.

An answer is written in several lines, one a content block, under one message id. Lines that a resumed session
copied carry the uuid of the original. A sidechain is a sub-agent: in the same file in older versions, in
`agent-ID.jsonl` in newer ones. The files hold no reward.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from bipace.analyze.fields import BadField, cause, mapped, named
from bipace.analyze.messages import as_text, message_steps
from bipace.analyze.readers.base import mapping_records
from bipace.analyze.records import LoggedTrajectory, Reading
from bipace.analyze.source import Located

__all__ = ["is_claude_code", "read_claude_code"]


def is_claude_code(record: object) -> bool:
    """A line with a session id, a type and a uuid or a message."""
    return isinstance(record, Mapping) and {"sessionId", "type"} <= set(record) and (
        "uuid" in record or "parentUuid" in record
    )  # fmt: skip


def read_claude_code(found: Iterable[Located], reading: Reading) -> Iterator[LoggedTrajectory]:
    """A session is a trajectory, a sidechain one of its own.

    What was copied from an earlier session counts once.

    The prompt group is the first thing the user wrote. The summary of a compaction is something the agent
    read.
    """
    threads: dict[tuple[str, str], list[dict[str, Any]]] = {}
    seen: set[str] = set()
    roots: dict[str, str] = {}
    places: dict[tuple[str, str], str] = {}
    failed: dict[tuple[str, str], str] = {}
    for where, line in mapping_records(found, reading):
        if line.get("type") not in ("user", "assistant"):
            continue
        identity = named(line, ("uuid",))
        if identity and identity in seen:
            reading.folded["lines copied from an earlier session"] += 1
            continue
        seen.add(identity)
        try:
            message = dict(mapped(line.get("message"), "message"))
        except BadField as error:
            reading.skip(where, str(error))
            continue
        key = (named(line, ("sessionId",)), _thread(line, identity, roots))
        places.setdefault(key, where)
        if line.get("isApiErrorMessage"):
            failed[key] = cause("error", as_text(message.get("content")))
            reading.folded["messages of the program about an error of the API"] += 1
            continue
        failed.pop(key, None)
        _add(threads.setdefault(key, []), message)
    mains = {session for session, thread in threads if not thread}
    for (session, thread), messages in threads.items():
        out = failed.get((session, thread), "")
        yield from _trajectory(
            session, thread, messages, places[session, thread], session in mains, out, reading
        )


def _thread(line: Mapping[str, Any], identity: str, roots: dict[str, str]) -> str:
    """Nothing for the main conversation, else what names the sub-agent.

    Its id, or the first line of its chain.
    """
    if not line.get("isSidechain"):
        return ""
    root = named(line, ("agentId",)) or roots.get(named(line, ("parentUuid",)), identity)
    roots[identity] = root
    return root


def _add(messages: list[dict[str, Any]], message: dict[str, Any]) -> None:
    """Put a line to its message: the blocks of one answer have one message id."""
    last = messages[-1] if messages else {}
    same = message.get("id") is not None and last.get("id") == message["id"]
    if same and isinstance(last.get("content"), list) and isinstance(message.get("content"), list):
        last["content"] = [*last["content"], *(b for b in message["content"] if b not in last["content"])]
        last["stop_reason"] = message.get("stop_reason") or last.get("stop_reason")
    else:
        messages.append(message)


def _trajectory(
    session: str,
    thread: str,
    messages: list[dict[str, Any]],
    where: str,
    whole: bool,
    out: str,
    reading: Reading,
) -> Iterator[LoggedTrajectory]:
    try:
        context, steps = message_steps(messages, None)
    except BadField as error:
        reading.skip(where, str(error))
        return
    opening = next((as_text(m.get("content")) for m in messages if m.get("role") == "user"), "")
    if not steps and not out:
        reading.skip(where, "a session without an answer of the model")
        return
    name = f"session {session}" + (f" / sub-agent {thread}" if thread else "")
    yield LoggedTrajectory(
        task=opening or name,
        name=name,
        steps=steps,
        context=context,
        where=where,
        role="sub-agent" if thread else "",
        out=out,
        parent=f"session {session}" if thread and whole else "",
        ids=(thread or session,),
    )
