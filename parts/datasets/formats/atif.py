"""Rollouts → trajectories of Harbor's Agent Trajectory Interchange Format (ATIF), one a line. Pure.

https://harborframework.com/docs/trajectory-format
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from burnish.parts.datasets.messages import parsed
from burnish.parts.datasets.tracks import Step, TrackStep, nonempty, tracks
from burnish.proxy.messages import text_of

VERSION = "ATIF-v1.7"
SOURCES = {"system": "system", "developer": "system", "user": "user", "assistant": "agent"}
FACTS = ("reward", "task", "group", "seed", "version", "status", "tags", "reasons")
UNKNOWN = "unknown"
"""An agent must have a name and a version; most programs don't send them."""

Json = dict[str, Any]


def lines(rollout: Mapping[str, Any]) -> Iterator[Json]:
    """A history that was rewritten gives several trajectories of one session."""
    parts = tracks(rollout["steps"])
    for part, track in enumerate(parts):
        first = track[0].step
        yield {
            "schema_version": VERSION,
            "session_id": rollout["id"],
            "trajectory_id": f"{rollout['id']}/{part}" if len(parts) > 1 else rollout["id"],
            "agent": {
                "name": first["agent"] or UNKNOWN,
                "version": UNKNOWN,
                "model_name": first["model"],
                **nonempty(tool_definitions=first["tools"]),
            },
            "steps": _numbered(track),
            "final_metrics": _totals(track),
            "extra": {name: rollout[name] for name in FACTS},
        }


def _numbered(track: Sequence[TrackStep]) -> list[Json]:
    steps: list[Json] = []
    for track_step in track:
        context = track_step.step["messages"]
        beside = {"timestamp": _time(track_step.step["created_at"])}
        beside |= nonempty(is_copied_context=track_step.shared)
        for message in context[len(context) - track_step.new :]:
            _add(steps, message, beside)
        steps.append(_answered(track_step))
    return [{"step_id": number, **step} for number, step in enumerate(steps, 1)]


def _add(steps: list[Json], message: Mapping[str, Any], beside: Json) -> None:
    """Add a message of a context: a result belongs to the step that called the tool."""
    if message.get("role") == "tool":
        name, output = message.get("tool_call_id"), {"content": text_of(dict(message))}
        for step in reversed(steps):
            if any(call["tool_call_id"] == name for call in step.get("tool_calls", ())):
                results = step.setdefault("observation", {"results": []})["results"]
                results.append({"source_call_id": name, **output})
                return
        steps.append({"source": "system", "message": "", "observation": {"results": [output]}, **beside})
        return
    source = SOURCES.get(str(message.get("role")), "user")
    steps.append(
        {
            "source": source,
            "message": text_of(dict(message)),
            **beside,
            **nonempty(tool_calls=_calls(message)),
            # An agent's step in a context that no step of the rollout made is the client's.
            **({"llm_call_count": 0} if source == "agent" else {}),
        }
    )


def _answered(track_step: TrackStep) -> Json:
    step, reply = track_step.step, track_step.step["reply"]
    thoughts = reply.get("reasoning_content")
    reward = {"reward": step["reward"]} if step["reward"] is not None else {}
    return {
        "source": "agent",
        "message": text_of(dict(reply)),
        "timestamp": _time(step["created_at"] + step["total_s"]),
        "model_name": step["model"],
        **nonempty(
            reasoning_content=thoughts if isinstance(thoughts, str) else "",
            tool_calls=_calls(reply),
            is_copied_context=track_step.shared,
        ),
        "metrics": _metrics(step),
        "llm_call_count": 1,
        "extra": {"completion_id": step["completion_id"], "finish_reason": step["finish_reason"], **reward},
    }


def _metrics(step: Step) -> Json:
    counts = {name: step[name] for name in ("prompt_tokens", "completion_tokens") if step[name] is not None}
    tokens = step["tokens"]
    if not tokens:
        return counts
    # The format has no place for a probability that the engine didn't tell.
    logprobs = {} if None in tokens["logprobs"] else {"logprobs": tokens["logprobs"]}
    prompt = nonempty(prompt_token_ids=tokens["prompt"])
    return {**counts, **prompt, "completion_token_ids": tokens["reply"], **logprobs}


def _totals(track: Sequence[TrackStep]) -> Json:
    totals = {"total_prompt_tokens": "prompt_tokens", "total_completion_tokens": "completion_tokens"}
    return {total: sum(track_step.step[name] or 0 for track_step in track) for total, name in totals.items()}


def _calls(message: Mapping[str, Any]) -> list[Json]:
    calls = []
    for call in message.get("tool_calls") or ():
        function = call.get("function") or call.get("custom") or {}
        arguments = parsed(function.get("arguments", function.get("input")))
        whole = arguments if isinstance(arguments, dict) else {"input": arguments}
        calls.append({
            "tool_call_id": str(call.get("id")), "function_name": str(function.get("name")), "arguments": whole,
        })  # fmt: skip
    return calls


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat()
