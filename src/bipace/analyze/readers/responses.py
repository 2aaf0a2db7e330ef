"""Items of the OpenAI Responses API -> chat messages.

And the reader of NVIDIA NeMo Gym's rollouts, which hold them.

NeMo Gym (nemo_gym/rollout_collection.py) writes one line a rollout: {responses_create_params, response,
reward, _ng_task_index, _ng_rollout_index}, with whatever the verifier adds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from bipace.analyze.fields import cause, first, listed, mapped, named
from bipace.analyze.messages import message_steps
from bipace.analyze.readers.base import OUTCOMES, failure, reward_of, spoken
from bipace.analyze.records import LoggedTrajectory, Reading, as_number

__all__ = ["is_nemo_gym", "item_messages", "read_nemo_gym"]

_OUTPUTS = ("function_call_output", "custom_tool_call_output", "computer_call_output", "mcp_call_output")


def is_nemo_gym(record: object) -> bool:
    """A rollout: the parameters of a Responses request beside its response, or NeMo Gym's indices."""
    if not isinstance(record, Mapping):
        return False
    indexed = "_ng_task_index" in record or "_ng_rollout_index" in record
    return "responses_create_params" in record and ("response" in record or "reward" in record or indexed)


def read_nemo_gym(where: str, record: Mapping[str, Any], reading: Reading) -> Iterator[LoggedTrajectory]:
    """The prompt group is the task index, the member the rollout index.

    A model call with its tool calls is one step.

    Masked samples, time-outs and failed graders are out. `resolved` or `info.success` is the outcome.
    """
    asked = mapped(record.get("responses_create_params"), "responses_create_params")
    response = mapped(record.get("response"), "response")
    before = item_messages(asked.get("input"), "responses_create_params.input")
    # Answers among the input were given to the agent, not by it.
    opening = [{**m, "role": "user"} if m["role"] == "assistant" else m for m in before]
    statement = named(asked, ("metadata.problem_statement", "metadata.prompt", "metadata.question"))
    if statement and not any(m["role"] != "system" for m in opening):
        opening.append({"role": "user", "content": statement})
    if isinstance(asked.get("instructions"), str):
        opening.insert(0, {"role": "system", "content": asked["instructions"]})
    answered = item_messages(response.get("output"), "response.output")
    if first(response, ("incomplete_details.reason",)) and answered and answered[-1]["role"] == "assistant":
        answered[-1]["finish_reason"] = "length"
    context, steps = message_steps([*opening, *answered], reward_of(record, where, reading))
    task, member = named(record, ("_ng_task_index",)), named(record, ("_ng_rollout_index",))
    about = {
        "task_id": f"task {task}" if task else named(asked, ("metadata.instance_id", "metadata.id")),
        "won": as_number(first(record, (*OUTCOMES, "info.success", "info.won", "info.solved"))),
        "agent_name": named(record, ("agent_ref.name",)),
        "rollout_id": named(record, ("rollout_id", "_ng_rollout_id"))
        or (f"{task}-{member}" if task and member else ""),
    }
    name = f"task {task}, rollout {member}" if task and member else ""
    yield from spoken(context, steps, about, where, reading, name, _out(record, response, bool(steps)))


def item_messages(items: object, field: str) -> list[dict[str, Any]]:
    """Chat messages of Responses items: what a model gave without hearing anything in between is one message.

    Raises:
        BadField: no list of objects.
    """
    if isinstance(items, str):
        return [{"role": "user", "content": items}]
    messages: list[dict[str, Any]] = []
    for i, item in enumerate(listed(items, field)):
        item = mapped(item, f"{field}[{i}]")
        kind, role = item.get("type") or "message", item.get("role")
        if kind in _OUTPUTS or (kind != "message" and "output" in item and "arguments" not in item):
            messages.append(
                {"role": "tool", "content": item.get("output"), "tool_call_id": item.get("call_id")}
            )
        elif kind == "message" and role != "assistant":
            messages.append(
                {"role": role if role in ("system", "developer") else "user", "content": item.get("content")}
            )
        else:
            if not messages or messages[-1]["role"] != "assistant":
                messages.append({"role": "assistant", "content": [], "tool_calls": []})
            _answered(messages[-1], item, kind)
    return messages


def _answered(message: dict[str, Any], item: Mapping[str, Any], kind: object) -> None:
    content = item.get("content")
    if kind == "message":
        message["content"] += content if isinstance(content, list) else [{"type": "text", "text": content}]
        if item.get("tool_calls"):
            message["tool_calls"] += listed(item["tool_calls"], "tool_calls")
    elif kind == "reasoning":
        said = content or item.get("summary")
        message["content"] += said if isinstance(said, list) else [{"type": "text", "text": said}]
    else:
        message["tool_calls"].append(item)
    if item.get("status") == "incomplete":
        message["finish_reason"] = "length"


def _out(record: Mapping[str, Any], response: Mapping[str, Any], answered: bool) -> str:
    inner = mapped(record.get("instance_config"), "instance_config").get("mask_sample")
    mask = record.get("mask_sample") if "mask_sample" in record else inner
    if record.get("_ng_failure_class"):
        return cause("failed", record["_ng_failure_class"])
    if response.get("error"):
        return failure({"error": response["error"]})
    if mask:
        kinds = ("error_kind", "agent_error_kind", "error")
        timed = [k for k in ("agent_timed_out", "eval_timed_out") if record.get(k)]
        return cause("masked", timed[0].replace("_", " ") if timed else named(record, kinds))
    # A file that says which samples are masked has judged its own errors: the others count.
    told = mask is None and failure(record)
    return told or ("" if answered else "no response")
