"""Rated answers → lines for trainers. Pure.

``sft``, ``dpo`` and ``kto`` hold messages as clients send them. TRL's conversational types are the same columns with
the arguments of calls as objects, as its documentation has them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import orjson

from burnish.parts.datasets.messages import parsed

Rated = Mapping[str, Any]
"""A rated answer, as ``GET /burnish/rated`` has it."""
TRL_TYPES = {"prompt_completion": "sft", "preference": "dpo", "unpaired_preference": "kto"}
"""TRL's names of dataset types, and which of our formats each is like."""
MESSAGE = ("role", "content", "tool_calls", "tool_call_id", "name")
"""What a message of TRL has."""


class Example(NamedTuple):
    kind: str
    """What it was made of, in words that are counted."""
    line: dict[str, Any]


def written(name: str, rated: Rated, left_out: Counter[str]) -> list[Example]:
    """Return the lines of a rated answer in a format; without any, the reason is counted."""
    if rated["obstacle"]:
        left_out[rated["obstacle"]] += 1
        return []
    make, why = FORMATS[TRL_TYPES.get(name, name)]
    found = [*make(rated)]
    if not found:
        left_out[why(rated)] += 1
    shaped = TRL.get(name, _as_it_is)
    tools = {"tools": rated["tools"]} if rated["tools"] else {}
    return [Example(each.kind, shaped(each.line | tools)) for each in found]


def _demonstrations(rated: Rated) -> Iterator[Example]:
    if rated["correction"]:
        yield Example("corrections", {"messages": [*rated["messages"], _correction(rated)]})
    elif rated["reward"] > 0:
        yield Example("good answers", {"messages": [*rated["messages"], rated["reply"]]})


def _no_demonstration(rated: Rated) -> str:
    return "rated bad and not corrected" if rated["reward"] < 0 else "neither rated good nor corrected"


def _preferences(rated: Rated) -> Iterator[Example]:
    pairs = [("corrections", _correction(rated), rated["reply"])] if rated["correction"] else []
    pairs += [("preferences", rated["reply"], each) for each in rated["worse"]]
    pairs += [("good and bad answers to the same", rated["reply"], each) for each in rated["opposed"]]
    seen: list[Any] = []
    for kind, chosen, rejected in pairs:
        if chosen != rejected and (chosen, rejected) not in seen:
            seen.append((chosen, rejected))
            line = {"prompt": rated["messages"], "chosen": [chosen], "rejected": [rejected]}
            yield Example(kind, line)


def _ratings(rated: Rated) -> Iterator[Example]:
    prompt = rated["messages"]
    if rated["correction"]:
        yield Example("corrections", {"prompt": prompt, "completion": [_correction(rated)], "label": True})
    if rated["reward"]:
        good = rated["reward"] > 0
        line = {"prompt": prompt, "completion": [rated["reply"]], "label": good}
        yield Example("good answers" if good else "bad answers", line)


FORMATS: Mapping[str, tuple[Callable[[Rated], Iterator[Example]], Callable[[Rated], str]]] = {
    "sft": (_demonstrations, _no_demonstration),
    "dpo": (_preferences, lambda _: "nothing to compare it with"),
    "kto": (_ratings, lambda _: "neither rated good nor bad"),
}
"""What makes the lines, and what says why there is none."""


def _correction(rated: Rated) -> dict[str, Any]:
    return {"role": "assistant", "content": rated["correction"]}


# -- TRL ---------------------------------------------------------------------------------------------------------------


def _as_it_is(line: dict[str, Any]) -> dict[str, Any]:
    return line


def _conversational(line: dict[str, Any]) -> dict[str, Any]:
    shaped = {
        name: [_message(each) for each in value] if isinstance(value, list) else value
        for name, value in line.items()
        if name != "tools"
    }
    # As JSON in a text: a column of objects with different members has no type.
    return shaped | ({"tools": orjson.dumps(line["tools"]).decode()} if "tools" in line else {})


def _prompt_completion(line: dict[str, Any]) -> dict[str, Any]:
    *prompt, completion = line.pop("messages")
    return _conversational({"prompt": prompt, "completion": [completion], **line})


def _message(message: Mapping[str, Any]) -> dict[str, Any]:
    shaped = {name: message[name] for name in MESSAGE if message.get(name) is not None}
    if "tool_calls" in shaped:
        shaped["tool_calls"] = [_call(each) for each in shaped["tool_calls"]]
    return {"content": ""} | shaped


def _call(call: Mapping[str, Any]) -> dict[str, Any]:
    function = dict(call.get("function") or {})
    function["arguments"] = parsed(function.get("arguments"))
    return {"type": "function", "function": function}


TRL: Mapping[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "prompt_completion": _prompt_completion,
    "preference": _conversational,
    "unpaired_preference": _conversational,
}
