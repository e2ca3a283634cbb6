"""Rated answers → lines for trainers. Pure.

``sft``, ``dpo`` and ``kto`` hold messages as clients send them. TRL's conversational types are the same columns with
the arguments of calls as objects, as its documentation has them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import orjson

from burnish.gate.replies import text_of
from burnish.parts.datasets.messages import parsed

RatedAnswer = Mapping[str, Any]
"""A rated answer, as ``GET /burnish/rated`` has it."""
TRL_TYPES = {"prompt_completion": "sft", "preference": "dpo", "unpaired_preference": "kto"}
"""TRL's names of dataset types, and which of our formats each is like."""
MESSAGE = ("role", "content", "tool_calls", "tool_call_id", "name")
"""What a message of TRL has."""


class ExampleLine(NamedTuple):
    kind: str
    """What it was made of, in words that are counted."""
    line: dict[str, Any]


def example_lines(name: str, answer: RatedAnswer, left_out: Counter[str]) -> list[ExampleLine]:
    """Return the lines of a rated answer in a format; without any, the reason is counted."""
    if answer["obstacle"]:
        left_out[answer["obstacle"]] += 1
        return []
    make, why = FORMATS[TRL_TYPES.get(name, name)]
    examples = [*make(answer)]
    if not examples:
        left_out[why(answer)] += 1
    shaped = TRL.get(name, _as_it_is)
    tools = {"tools": answer["tools"]} if answer["tools"] else {}
    return [ExampleLine(example.kind, shaped(example.line | tools)) for example in examples]


def _demonstrations(answer: RatedAnswer) -> Iterator[ExampleLine]:
    if answer["correction"]:
        yield ExampleLine("corrections", {"messages": [*answer["messages"], _correction(answer)]})
    elif answer["reward"] > 0:
        yield ExampleLine("good answers", {"messages": [*answer["messages"], answer["reply"]]})


def _no_demonstration(answer: RatedAnswer) -> str:
    return "rated bad and not corrected" if answer["reward"] < 0 else "neither rated good nor corrected"


def _preferences(answer: RatedAnswer) -> Iterator[ExampleLine]:
    pairs = [("corrections", _correction(answer), answer["reply"])] if answer["correction"] else []
    pairs += [("preferences", answer["reply"], reply) for reply in answer["worse"]]
    pairs += [("good and bad answers to the same", answer["reply"], reply) for reply in answer["opposed"]]
    earlier_pairs: list[Any] = []
    for kind, chosen, rejected in pairs:
        if chosen != rejected and (chosen, rejected) not in earlier_pairs:
            earlier_pairs.append((chosen, rejected))
            line = {"prompt": answer["messages"], "chosen": [chosen], "rejected": [rejected]}
            yield ExampleLine(kind, line)


def _ratings(answer: RatedAnswer) -> Iterator[ExampleLine]:
    prompt = answer["messages"]
    if answer["correction"]:
        yield ExampleLine(
            "corrections", {"prompt": prompt, "completion": [_correction(answer)], "label": True}
        )
    if answer["reward"]:
        good = answer["reward"] > 0
        line = {"prompt": prompt, "completion": [answer["reply"]], "label": good}
        yield ExampleLine("good answers" if good else "bad answers", line)


FORMATS: Mapping[str, tuple[Callable[[RatedAnswer], Iterator[ExampleLine]], Callable[[RatedAnswer], str]]] = {
    "sft": (_demonstrations, _no_demonstration),
    "dpo": (_preferences, lambda _: "nothing to compare it with"),
    "kto": (_ratings, lambda _: "neither rated good nor bad"),
}
"""What makes the lines, and what says why there is none."""


def _correction(answer: RatedAnswer) -> dict[str, Any]:
    return {"role": "assistant", "content": answer["correction"]}


# -- TRL ---------------------------------------------------------------------------------------------------------------


def _as_it_is(line: dict[str, Any]) -> dict[str, Any]:
    return line


def _conversational(line: dict[str, Any]) -> dict[str, Any]:
    shaped = {
        name: [_message(message) for message in column] if isinstance(column, list) else column
        for name, column in line.items()
        if name != "tools"
    }
    # As JSON in a text: a column of objects with different members has no type.
    return shaped | ({"tools": orjson.dumps(line["tools"]).decode()} if "tools" in line else {})


def _prompt_completion(line: dict[str, Any]) -> dict[str, Any]:
    *prompt, completion = line.pop("messages")
    return _conversational({"prompt": prompt, "completion": [completion], **line})


def _message(message: Mapping[str, Any]) -> dict[str, Any]:
    shaped = {name: message[name] for name in MESSAGE if message.get(name) is not None}
    if isinstance(shaped.get("content"), list):
        shaped["content"] = text_of(shaped)  # as training has it: a column of texts and lists has no type
    if "tool_calls" in shaped:
        shaped["tool_calls"] = [_call(call) for call in shaped["tool_calls"]]
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
