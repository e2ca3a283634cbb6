"""Rollouts → episodes as ``verifiers`` 0.4 keeps them in ``traces.jsonl``, one a line. Pure.

A trace is a graph of messages. Each node holds the tokens that it adds, so those along a path are what the engine saw.
burnish knows where a reply begins, and not which message in a prompt has which tokens: they stand before the reply's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import burnish
from burnish.parts.datasets.tracks import Step, TrackStep, nonempty, token_prefix, tracks
from burnish.proxy.messages import text_of
from burnish.proxy.surfaces.ends import end_of

TRACE_VERSION = 1
FINISH_REASONS = frozenset({"stop", "length", "tool_calls"})
ROLES = {"developer": "system"}
REWARD = "environment"
"""Name of the sum of a rollout's rewards."""

Json = dict[str, Any]


def lines(rollout: Mapping[str, Any]) -> Iterator[Json]:
    """One episode with one trace; a history that was rewritten is another branch of its graph."""
    ok = rollout["status"] == "ended"
    task = _task(rollout)
    yield {
        "id": rollout["id"],
        "env": {"id": rollout["task"] or "burnish"},
        "task": task,
        **nonempty(group=nonempty(id=rollout["group"])),
        "ok": ok,
        "is_timeout": not ok,
        "errors": [],
        "traces": [_trace(rollout, task, ok=ok)],
    }


def _task(rollout: Mapping[str, Any]) -> Json:
    seed = {} if rollout["seed"] is None else {"seed": rollout["seed"]}
    names = nonempty(id=rollout["group"], name=rollout["task"], tags=rollout["tags"])
    return {"type": "Task", "data": names | seed}


def _trace(rollout: Mapping[str, Any], task: Json, *, ok: bool) -> Json:
    steps = rollout["steps"]
    nodes, ends = _graph(steps)
    start, end = steps[0]["created_at"], rollout["ended_at"] or steps[-1]["created_at"]
    rewards = {} if rollout["reward"] is None else {REWARD: {"score": rollout["reward"], "weight": 1.0}}
    return {
        "version": TRACE_VERSION,
        "id": rollout["id"],
        "verifiers": {"version": f"burnish {burnish.__version__}"},
        "task": task,
        "agent": {
            "config": {"model": steps[0]["model"]},
            "name": steps[0]["agent"] or "agent",
            "trainable": True,
        },
        "tools": [_tool(tool) for tool in steps[0]["tools"]],
        "nodes": nodes,
        "calls": [_call(step, ends[number]) for number, step in enumerate(steps)],
        "rewards": rewards,
        "info": {
            "version": rollout["version"],
            "step_rewards": [step["reward"] for step in steps],
            "reasons": rollout["reasons"],
        },
        "is_completed": True,
        "ok": ok,
        "stop_condition": "ended" if ok else "timed_out",
        "is_timeout": not ok,
        "timing": {"start": rollout["created_at"], "agent": {"start": start, "end": end}},
    }


def _graph(steps: list[Step]) -> tuple[list[Json], dict[int, int]]:
    """Return the nodes, and the node of each step's reply."""
    nodes: list[Json] = []
    ends: dict[int, int] = {}
    for track in tracks(steps, token_prefix):
        parent: int | None = None
        token_count = 0
        """Tokens on the path so far."""
        for track_step in track:
            if track_step.number not in ends:
                context = track_step.step["messages"]
                for message in context[len(context) - track_step.new :]:
                    at = track_step.step["created_at"]
                    node = {"parent": parent, "message": _message(message), "timestamp": at}
                    if parent is None:
                        node["tools"] = [_tool(tool) for tool in track_step.step["tools"]]
                    nodes.append(node)
                    parent = len(nodes) - 1
                nodes.append(_sampled(track_step, parent, token_count))
                ends[track_step.number] = len(nodes) - 1
            parent = ends[track_step.number]
            tokens = track_step.step["tokens"]
            token_count = len(tokens["prompt"]) + len(tokens["reply"]) if tokens else 0
    return nodes, ends


def _sampled(track_step: TrackStep, parent: int | None, token_count: int) -> Json:
    step = track_step.step
    node = {
        "parent": parent,
        "message": _message(step["reply"]),
        "sampled": True,
        "timestamp": step["created_at"] + step["total_s"],
    }
    tokens = step["tokens"]
    if not tokens or not tokens["prompt"]:
        return node
    context_ids, reply = tokens["prompt"][token_count:], tokens["reply"]
    logprobs = [] if None in tokens["logprobs"] else tokens["logprobs"]
    mask = [False] * len(context_ids) + [True] * len(reply)
    return {**node, "token_ids": [*context_ids, *reply], "mask": mask, "logprobs": logprobs}


def _call(step: Step, node: int) -> Json:
    counts = step["prompt_tokens"], step["completion_tokens"]
    usage = {"prompt_tokens": counts[0], "completion_tokens": counts[1]} if None not in counts else None
    reason = "stop" if end_of(step["finish_reason"]) in ("whole", "stopped") else None
    reason = step["finish_reason"] if step["finish_reason"] in FINISH_REASONS else reason
    time = {"start": step["created_at"], "end": step["created_at"] + step["total_s"]}
    call = {"node": node, "model": step["model"], "endpoint": "/chat/completions", "time": time}
    return call | nonempty(finish_reason=reason, usage=usage)


def _message(message: Mapping[str, Any]) -> Json:
    role = ROLES.get(str(message.get("role")), str(message.get("role")))
    if role == "assistant":
        calls = [_tool_call(call) for call in message.get("tool_calls") or ()]
        beside = nonempty(reasoning_content=message.get("reasoning_content"), tool_calls=calls)
        return {"role": role, "content": text_of(dict(message)) or None, **beside}
    call_id = {"tool_call_id": str(message.get("tool_call_id"))} if role == "tool" else {}
    return {"role": role, "content": _content(message), **call_id}


def _content(message: Mapping[str, Any]) -> Any:
    """Return a text, or parts if there are images among them; others have no place there."""
    content = message.get("content")
    if isinstance(content, list) and any(
        isinstance(part, dict) and part.get("type") == "image_url" for part in content
    ):
        return [
            part for part in content if isinstance(part, dict) and part.get("type") in ("text", "image_url")
        ]
    return text_of(dict(message))


def _tool_call(call: Mapping[str, Any]) -> Json:
    kind = "custom" if "custom" in call else "function"
    function = call.get(kind) or {}
    arguments = function.get("arguments", function.get("input"))
    return {
        "id": str(call.get("id")),
        "type": kind,
        "name": str(function.get("name")),
        "arguments": str(arguments or ""),
    }


def _tool(tool: Mapping[str, Any]) -> Json:
    function = tool.get("function") or tool
    fields = nonempty(description=function.get("description"), parameters=function.get("parameters"))
    return {"type": "function", "name": str(function.get("name")), **fields}
