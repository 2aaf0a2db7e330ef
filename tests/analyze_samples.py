# long: one writer a format, a reference that is searched and not read through
"""One tiny sample of every format that `bipace analyze` reads, written by hand in the shape that its tool
writes.

`SAMPLES[name]` are the records of one file; what a careful reader makes of them is counted by hand in
`tests/unit/test_analyze_families.py`, and the fuzzer damages them.
"""

from __future__ import annotations

import json
from typing import Any


def said(text: str, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text, **more}


def user(text: Any) -> dict[str, Any]:
    return {"role": "user", "content": text}


def call(name: str, identity: str = "c1", **arguments: Any) -> dict[str, Any]:
    return {
        "id": identity,
        "type": "function",
        "function": {"name": name, "arguments": json.dumps(arguments)},
    }


def heard(text: str, identity: str = "c1") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": identity, "content": text}


CHAT = [
    {"role": "system", "content": "Be brief."},
    user("Where is the mug?"),
    said("", tool_calls=[call("look", b=1, a=2)]),
    heard("On the desk."),
    said("On the desk."),
]


def nemo(task: int, rollout: int, reward: float, **more: Any) -> dict[str, Any]:
    text = [{"type": "output_text", "text": "I look.", "annotations": []}]
    output = [
        {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "Hm."}]},
        {"type": "message", "role": "assistant", "content": text, "status": "completed"},
        {"type": "function_call", "call_id": "b", "name": "look", "arguments": '{"at": "desk"}'},
        {"type": "function_call", "call_id": "a", "name": "look", "arguments": '{"at": "bed"}'},
        {"type": "function_call_output", "call_id": "b", "output": "a mug"},
        {"type": "function_call_output", "call_id": "a", "output": "a cat"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Desk."}]},
    ]
    asked = {"input": [{"role": "system", "content": "Be brief."}, user("Where is the mug?")], "tools": []}
    return {
        "responses_create_params": asked,
        "response": {"id": "x", "object": "response", "error": None, "output": output},
        "reward": reward,
        "_ng_task_index": task,
        "_ng_rollout_index": rollout,
        "agent_ref": {"type": "responses_api_agents", "name": "finder"},
        **more,
    }


def inspect_sample(identity: int, epoch: int, value: Any, **more: Any) -> dict[str, Any]:
    messages = [
        {"role": "system", "content": "attachment://abc"},
        {**user("2+2?"), "source": "input"},
        {
            **said("", source="generate"),
            "tool_calls": [{"id": "t", "function": "add", "arguments": {"a": 2, "b": 2}}],
        },
        {"role": "tool", "tool_call_id": "t", "function": "add", "content": "4"},
        said("4", source="generate"),
    ]
    return {
        "id": identity,
        "epoch": epoch,
        "input": "2+2?",
        "target": "4",
        "messages": messages,
        "output": {"choices": [{"stop_reason": "stop", "message": said("4")}]},
        "scores": None if value is None else {"match": {"value": value}, "length": {"value": 1}},
        "attachments": {"abc": "Answer briefly."},
        **more,
    }


def atif_step(number: int, source: str, message: str, **more: Any) -> dict[str, Any]:
    return {"step_id": number, "source": source, "message": message, **more}


def atif(session: str, steps: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    agent = {"name": "terminus", "version": "2"}
    return {"schema_version": "ATIF-v1.6", "session_id": session, "agent": agent, "steps": steps, **more}


ATIF_FIRST = atif(
    "run",
    [
        atif_step(1, "user", "Fix the bug."),
        atif_step(
            2, "agent", "Look.",
            tool_calls=[{"tool_call_id": "c", "function_name": "ls", "arguments": {}}],
            observation={"results": [{"source_call_id": "c", "content": "a.py"}]},
        ),
        atif_step(3, "system", "Context is summarised."),
    ],
    continued_trajectory_ref="trajectory.cont-1.json",
)  # fmt: skip
ATIF_CONTINUED = {
    **atif(
        "run-cont-1",
        [
            atif_step(1, "user", "Fix the bug.", is_copied_context=True),
            atif_step(2, "agent", "So far: looked.", is_copied_context=True),
            atif_step(3, "user", "Go on from: looked.", is_copied_context=True),
            atif_step(4, "agent", "Done."),
        ],
        extra={"reward": 1.0},
    ),
    "agent": {"name": "terminus", "version": "2", "extra": {"continuation_index": 1}},
}
ATIF_PARENT = atif(
    "boss",
    [
        atif_step(1, "user", "Write a book."),
        atif_step(
            2, "agent", "", llm_call_count=0,
            tool_calls=[{"tool_call_id": "d", "function_name": "hire", "arguments": {}}],
            observation={"results": [
                {"source_call_id": "d", "content": "hired",
                "subagent_trajectory_ref": [{"trajectory_id": "kid"}]}
            ]},
        ),
        atif_step(3, "agent", "Published."),
    ],
    extra={"reward": 0.5},
    subagent_trajectories=[{
        **atif("boss", [
            atif_step(1, "user", "Write a book.", is_copied_context=True),
            atif_step(2, "user", "Write chapter 1."),
            atif_step(3, "agent", "It was a dark night."),
        ]),
        "trajectory_id": "kid",
        "agent": {"name": "writer", "version": "1"},
    }],
)  # fmt: skip


def swe(actions: list[tuple[str, str]], status: str = "submitted", **info: Any) -> dict[str, Any]:
    """A run whose step i did action i and saw observation i."""
    steps = [
        {"action": a, "observation": o, "response": f"I will.\n```\n{a}\n```" if a else "",
        "thought": "I will.",
         "state": "{}"}
        for a, o in actions
    ]  # fmt: skip
    history = [
        {"role": "system", "content": "You fix bugs."},
        {"role": "user", "content": "a demonstration", "is_demo": True},
        {"role": "user", "content": "ISSUE: it crashes"},
    ]
    problem = json.dumps({"problem_statement": {"id": "repo__1", "text": "it crashes"}})
    return {
        "environment": "main",
        "trajectory": steps,
        "history": history,
        "info": {"exit_status": status, "submission": "diff", **info},
        "replay_config": problem,
    }


def mini(status: str = "Submitted", **extra: Any) -> dict[str, Any]:
    first = said("List.\n\n```mswea_bash_command\nls\n```", extra={"actions": [{"command": "ls"}]})
    return {
        "info": {"exit_status": status, "submission": "diff", "mini_version": "2.0.0"},
        "messages": [
            {"role": "system", "content": "You fix bugs."},
            user("Please solve: it crashes"),
            first,
            {**user("<output>a.py</output>"), "extra": {"returncode": 0}},
            said("Submit.\n\n```bash\nsubmit\n```"),
            {"role": "exit", "content": status, "extra": {"exit_status": status, **extra}},
        ],
        "instance_id": "repo__1",
        "trajectory_format": "mini-swe-agent-1.1",
    }


def v0_call(identity: int, response: str, calls: list[str], which: int) -> dict[str, Any]:
    native = [{"id": f"{response}{i}", "function": {"name": "run", "arguments": json.dumps({"command": c})}}
              for i, c in enumerate(calls)]  # fmt: skip
    answer = {"id": response, "choices": [{"message": {"content": "I run.", "tool_calls": native}}]}
    metadata = {"function_name": "run", "tool_call_id": f"{response}{which}", "model_response": answer}
    args = {"command": calls[which], "thought": "I run.", "is_input": False}
    return {"id": identity, "source": "agent", "action": "run", "args": args, "tool_call_metadata": metadata}


OPENHANDS_V0: list[dict[str, Any]] = [
    {"id": 0, "source": "agent", "action": "system", "args": {"content": "You are helpful."}},
    {"id": 1, "source": "user", "action": "message", "args": {"content": "Make a game."}},
    {"id": 2, "source": "user", "action": "recall", "args": {"query": "game"}},
    v0_call(3, "m", ["ls", "pwd"], 0),
    v0_call(4, "m", ["ls", "pwd"], 1),
    {"id": 5, "source": "agent", "cause": 3, "observation": "run", "content": "empty", "extras": {},
     "tool_call_metadata": {"tool_call_id": "m0"}},
    {"id": 6, "source": "agent", "cause": 4, "observation": "run", "content": "/work", "extras": {},
     "tool_call_metadata": {"tool_call_id": "m1"}},
    {"id": 7, "source": "environment", "observation": "agent_state_changed", "content": "", "extras": {}},
    {"id": 8, "source": "agent", "action": "finish", "args": {"outputs": {}, "thought": "All done."}},
]  # fmt: skip


def v1_action(identity: str, response: str, command: str) -> dict[str, Any]:
    tool = {
        "id": f"call-{identity}",
        "name": "terminal",
        "arguments": json.dumps({"command": command, "risk": "LOW"}),
    }
    return {
        "kind": "ActionEvent", "id": identity, "source": "agent", "llm_response_id": response,
        "thought": [{"type": "text", "text": "I run."}], "action": {"command": command,
        "kind": "TerminalAction"},
        "tool_name": "terminal", "tool_call_id": tool["id"], "tool_call": tool,
    }  # fmt: skip


def v1_seen(identity: str, text: str) -> dict[str, Any]:
    return {"kind": "ObservationEvent", "id": f"o{identity}", "source": "environment", "action_id": identity,
            "tool_name": "terminal", "tool_call_id": f"call-{identity}",
            "observation": {"content": [{"type": "text", "text": text}],
            "kind": "TerminalObservation"}}  # fmt: skip


OPENHANDS_V1: list[dict[str, Any]] = [
    {"kind": "SystemPromptEvent", "id": "s", "source": "agent",
     "system_prompt": {"type": "text", "text": "You are helpful."}, "tools": []},
    {"kind": "MessageEvent", "id": "u", "source": "user",
     "llm_message": user([{"type": "text", "text": "Make a game."}])},
    {"kind": "ConversationStateUpdateEvent", "id": "c", "source": "environment", "key": "stats", "value": {}},
    v1_action("a", "r1", "ls"),
    v1_action("b", "r1", "pwd"),
    v1_seen("a", "empty"),
    v1_seen("b", "/work"),
    {"kind": "MessageEvent", "id": "m", "source": "agent",
     "llm_message": said("All done."), "llm_response_id": "r2"},
]  # fmt: skip


def node(parent: int | None, message: dict[str, Any], sampled: bool = False, **more: Any) -> dict[str, Any]:
    return {"parent": parent, "message": message, "sampled": sampled, **more}


def episode(group: str, score: float | None, **more: Any) -> dict[str, Any]:
    """A solver's trace of two branches (the second after a compaction), and a judge that is not trained."""
    nodes = [
        node(None, {"role": "system", "content": "Solve."}),
        node(0, user("2+2?")),
        node(1, said("I think."), True),
        node(None, user("Summary: thinking about 2+2")),
        node(3, said("4"), True),
    ]
    trace = {
        "id": f"{group}-{score}", "task": {"type": "Sum", "data": {}, "key": "sum"},
        "agent": {"name": "solver", "trainable": True}, "nodes": nodes,
        "calls": [{"node": 2, "finish_reason": "length"}],
        "rewards": {"right": None if score is None else {"score": score, "weight": 2.0}}, "ok": True,
        "errors": [],
    }  # fmt: skip
    judge = {**trace, "id": "judge", "agent": {"name": "judge", "trainable": False}}
    policy = {"policy": {"start": 3, "end": 5}, "type": "train", "step": 3}
    return {"id": f"e{group}{score}", "task": {"key": "sum"}, "group": {"id": group}, "ok": True,
        "errors": [],
            "run": {"type": "train", "id": "r", "work": policy}, "traces": [trace, judge],
            **more}  # fmt: skip


def art_row(group: int, index: int, reward: float, answer: str) -> dict[str, Any]:
    empty = {"tool_calls": None, "tool_call_id": None, "trainable": False}
    messages = [
        {**empty, "role": "user", "content": "2+2?"},
        {**empty, "role": "assistant", "content": "An example: 3"},
        {**empty, "role": "user", "content": "Now you."},
        {
            **empty,
            "role": "assistant",
            "content": None,
            "tool_calls": json.dumps([call("add", a=2)]),
            "trainable": True,
        },
        {**empty, "role": "tool", "content": "4", "tool_call_id": "c1"},
        {**empty, "role": "assistant", "content": answer, "trainable": True},
    ]
    return {"group_index": group, "group_metadata": None, "reward": reward,
        "metrics": json.dumps({"correct": reward}),
            "metadata": json.dumps({"scenario_id": f"s{group}"}), "tools": None, "logs": None,
            "messages": messages, "trajectory_index": index}  # fmt: skip


def generation(trace: str, number: int, read: list[Any], output: Any, **more: Any) -> dict[str, Any]:
    return {"id": f"{trace}-{number}", "traceId": trace, "type": "GENERATION", "name": "llm",
            "startTime": f"10:0{number}", "parentObservationId": None, "input": read, "output": output,
            "level": "DEFAULT", **more}  # fmt: skip


def langfuse(trace: str, score: float, **more: Any) -> dict[str, Any]:
    first = [user("Where is the mug?")]
    asked = said("", tool_calls=[call("look")])
    observations = [
        generation(
            trace, 2, [*first, asked, heard("On the desk.")], {"role": "assistant", "content": "On the desk."}
        ),
        generation(trace, 1, first, asked),
        {"id": f"{trace}-tool", "traceId": trace, "type": "SPAN", "name": "look", "startTime": "10:01:30"},
    ]
    scores = [{"name": "verbosity", "value": 9.0}, {"name": "correct", "value": score}]
    return {"id": trace, "name": "find", "input": "Where is the mug?", "metadata": {"task_id": "mug"},
            "observations": observations, "scores": scores, **more}  # fmt: skip


def span(
    trace: str, identity: str, parent: str | None, kind: str, start: str, **attributes: Any
) -> dict[str, Any]:
    return {"name": kind.lower(), "context": {"trace_id": trace, "span_id": identity}, "parent_id": parent,
            "start_time": start, "status_code": "OK",
            "attributes": {"openinference.span.kind": kind, **attributes}}  # fmt: skip


OPENINFERENCE = [
    span("t", "root", None, "AGENT", "1", **{"annotations.0.annotation.name": "reward",
                                             "annotations.0.annotation.score": 1.0}),
    span("t", "l1", "root", "LLM", "2", **{
        "llm.input_messages.0.message.role": "user",
        "llm.input_messages.0.message.content": "Where is the mug?",
        "llm.output_messages.0.message.role": "assistant",
        "llm.output_messages.0.message.tool_calls.0.tool_call.function.name": "look",
        "llm.output_messages.0.message.tool_calls.0.tool_call.function.arguments": "{}"}),
    span("t", "inner", "root", "AGENT", "3"),
    span("t", "l2", "inner", "LLM", "4", **{"input.value": "Look at the desk.", "output.value": "A mug."}),
    span("t", "l3", "root", "LLM", "5", **{
        "llm.input_messages": [
            {"message.role": "user", "message.content": "Where is the mug?"},
            {"message.role": "assistant", "message.content": "",
             "message.tool_calls": [{"tool_call.function.name": "look",
             "tool_call.function.arguments": "{}"}]},
            {"message.role": "tool", "message.content": "A mug."}],
        "llm.output_messages": [{"message.role": "assistant", "message.content": "On the desk."}]}),
]  # fmt: skip


def line(kind: str, number: int, message: dict[str, Any] | None, **more: Any) -> dict[str, Any]:
    return {"type": kind, "uuid": f"u{number}", "parentUuid": f"u{number - 1}", "sessionId": "s",
        "isSidechain": False,
            **({} if message is None else {"message": message}), **more}  # fmt: skip


CLAUDE_CODE = [
    {"type": "summary", "summary": "A mug", "leafUuid": "u9"},
    line("user", 1, user("Where is the mug?")),
    line("assistant", 2, {"id": "m1", **said([{"type": "thinking", "thinking": "Hm."}])}),
    line(
        "assistant",
        3,
        {"id": "m1", **said([{"type": "tool_use", "id": "t1", "name": "Task", "input": {"p": 1}}])},
    ),
    line("user", 4, user("Look at the desk."), isSidechain=True),
    line("assistant", 5, {"id": "m2", **said([{"type": "text", "text": "A mug."}])}, isSidechain=True),
    line("user", 6, user([{"type": "tool_result", "tool_use_id": "t1", "content": "A mug."}])),
    line("user", 1, user("Where is the mug?")),
    line("assistant", 7, {"id": "m3", **said([{"type": "text", "text": "On the desk."}])}),
    line("system", 8, None, subtype="turn_duration"),
]


def row(task: str, trajectory: str, step: int, reward: float | None, **more: Any) -> dict[str, Any]:
    return {"task": task, "trajectory": trajectory, "step": step, "observation": f"room {step}",
        "action": "go",
            "reward": reward, **more}  # fmt: skip


def own(member: int, reward: float, **more: Any) -> dict[str, Any]:
    steps = [{"observation": "room", "response": "<action>go</action>", "action": "go", "parsed": True,
              "valid": True, "finished": True, "reward": reward, "executed": "go north"}]  # fmt: skip
    return {"task": "t", "member": member, "won": reward > 0, "error": "", "steps": steps, **more}


SAMPLES: dict[str, list[Any]] = {
    "nemo_gym": [nemo(0, 0, 1.0), nemo(0, 1, 0.0), nemo(0, 2, 0.0, mask_sample=True, agent_timed_out=True)],
    "inspect": [inspect_sample(1, 1, "C"), inspect_sample(1, 2, "I"),
                inspect_sample(1, 3, None, error={"message": "sandbox died"})],
    "terminal_bench": [{"trial_name": "hello.1", "task_id": "hello", "is_resolved": True,
    "failure_mode": "unset"},
                       {"trial_name": "hello.2", "task_id": "hello", "is_resolved": None,
                        "failure_mode": "agent_timeout"}],
    "openhands_eval": [{"instance_id": "repo__1", "test_result": {"report": {"resolved": True}},
                        "instruction": "Make a game.", "history": OPENHANDS_V0, "error": None},
                       {"instance_id": "repo__1", "test_result": {}, "history": [],
                        "error": "RuntimeError: died"}],
    "tau_bench": [{"task_id": 3, "trial": i, "reward": float(i), "traj": CHAT} for i in range(2)],
    "verifiers_traces": [episode("g", 1.0), episode("g", 0.0), episode("g", None)],
    "atif": [ATIF_FIRST, ATIF_CONTINUED, ATIF_PARENT],
    "swe_agent": [swe([("ls", "a.py"), ("cat a.py", "code"), ("", "")])],
    "mini_swe_agent": [mini()],
    "bipace": [own(0, 1.0, iteration=1), own(1, 0.0, iteration=1), own(0, 1.0, iteration=2)],
    "art": [art_row(0, 0, 1.0, "4"), art_row(0, 1, 0.0, "5")],
    "openhands": OPENHANDS_V1,
    "claude_code": CLAUDE_CODE,
    "langfuse": [langfuse("t1", 1.0), langfuse("t2", 0.0)],
    "openinference": OPENINFERENCE,
    "openai": [{"messages": CHAT, "reward": r, "task_id": "mug", "id": f"r{r}"} for r in (0.0, 1.0)],
    "verl": [{"input": f"q t{t}", "output": f"<action>go {t}</action>", "score": 1.0, "step": 7,
    "uid": f"g_0_{t}"}
             for t in range(2)],
    "trl": [{"step": 3, "prompt": "q", "completion": "a", "accuracy": r, "completion_length": 7,
    "advantage": a}
            for r, a in ((1.0, 0.7), (0.0, -0.7))],
    "verifiers": [{"example_id": 4, "prompt": CHAT[:2], "completion": CHAT[2:], "reward": r}
                  for r in (0.0, 1.0)],
    "adapt": [{"kitchen": {"t1": {"problem": "Find it.", "reward": 1,
                          "trace": "> think: where?\nOK.\n> go to desk\nA mug.\n> take mug\nTaken."}}}],
    "rows": [row("t", "a", 0, None), row("t", "a", 1, 1.0), row("t", "b", 0, 0.0)],
}  # fmt: skip
