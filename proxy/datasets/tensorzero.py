"""TensorZero: rows of its tables of inferences and feedback, one object per line. Pure.

``input``, ``output`` and a demonstration's ``value`` hold JSON, as text or as objects.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from burnish.proxy.datasets.found import Answer, Found, Item, Said, Unusable
from burnish.proxy.datasets.messages import moment_of, parsed, text_or_none, tool_call, uuid_moment

NOT_RATED = "inferences without feedback"
NO_TARGET = "feedback on inferences that the files don't hold"
TEMPLATE = "its prompt is a template with arguments, and the table doesn't hold the text that the model saw"


def read(items: list[Item], found: Found) -> None:
    inferences: dict[str, Item] = {}
    given: list[Item] = []
    for item in items:
        with found.line(item):
            row = item.content
            if "function_name" in row and "input" in row:
                inferences[str(row.get("id") or row.get("inference_id"))] = item
            elif "value" in row and ("target_id" in row or "inference_id" in row):
                given.append(item)
            else:
                raise Unusable("it is neither an inference nor feedback of TensorZero")
    episodes: dict[str, list[str]] = {}
    for name, item in sorted(inferences.items()):
        episodes.setdefault(str(item.content.get("episode_id")), []).append(name)
    for item in given:
        with found.line(item):
            _read_feedback(item, found, inferences, episodes)
    found.left_out[NOT_RATED] += sum(name not in found.answers for name in inferences)


def _read_feedback(
    item: Item, found: Found, inferences: Mapping[str, Item], episodes: Mapping[str, list[str]]
) -> None:
    row = item.content
    target = str(row.get("target_id") or row.get("inference_id"))
    names = [target] if target in inferences else episodes.get(target, [])
    if not names:
        found.left_out[NO_TARGET] += 1
        return
    for name in names:
        if name not in found.answers:
            found.add(inferences[name].place, _answer(name, inferences[name].content))
    about, whole = names[-1], target not in inferences
    moment = uuid_moment(str(row.get("id"))) or moment_of(row.get("timestamp"))
    said = Said(str(row.get("id") or f"{about}:{row.get('metric_name')}"), about, created_at=moment)
    value = row["value"]
    if "metric_name" in row:
        if not isinstance(value, bool | int | float):
            raise Unusable("the value of a metric isn't a number")
        scope = said._replace(scope="conversation") if whole else said
        found.add(item.place, scope._replace(metric=str(row["metric_name"]), value=float(value)))
    elif "target_type" in row:
        if (comment := text_or_none(value)) is None:
            raise Unusable("the comment is empty")
        found.add(item.place, said._replace(comment=comment))
    else:
        _add_demonstration(item, found, about, said)


def _add_demonstration(item: Item, found: Found, about: str, said: Said) -> None:
    """Keep a demonstration: a text is a correction; one with calls is an answer that is better."""
    reply = _output(item.content["value"])
    if "tool_calls" not in reply:
        found.add(item.place, said._replace(correction=reply["content"]))
        return
    shown = found.answers[about]._replace(name=f"{about}:demonstration", reply=reply)
    better = said._replace(about=shown.name, better_than=about, value=1.0, demonstration=True)
    found.add(item.place, shown, better)


def _answer(name: str, row: dict[str, Any]) -> Answer:
    given = parsed(row.get("input"))
    if not isinstance(given, dict) or not isinstance(given.get("messages"), list):
        raise Unusable("its input holds no messages")
    system = given.get("system")
    if system is not None and not isinstance(system, str):
        raise Unusable(TEMPLATE)
    messages = [{"role": "system", "content": system}] if system else []
    for each in given["messages"]:
        messages += _messages(each)
    if not messages:
        raise Unusable("its input holds no messages")
    tags, model = parsed(row.get("tags")), text_or_none(row.get("variant_name"))
    user = tags.get("user_id") if isinstance(tags, dict) else None
    return Answer(
        name,
        tuple(messages),
        _output(row.get("output")),
        _tools(row.get("tool_params")),
        uuid_moment(name) or moment_of(row.get("timestamp")),
        model,
        text_or_none(user),
        text_or_none(row.get("episode_id")),
    )


def _messages(given: Any) -> list[dict[str, Any]]:
    """Return the chat messages of one message: results of tools are messages of their own."""
    role = given.get("role") if isinstance(given, dict) else None
    if role not in ("user", "assistant"):
        raise Unusable("a message has no role")
    content = given.get("content")
    if isinstance(content, str):
        return [{"role": role, "content": content}]
    found: list[dict[str, Any]] = []
    texts, calls = [], []
    for block in _blocks(content):
        kind = block.get("type")
        if kind == "text":
            texts.append(_text(block))
        elif kind == "raw_text":
            texts.append(str(block.get("value")))
        elif kind == "tool_call":
            calls.append(_call(block))
        elif kind == "tool_result":
            name, result = str(block.get("id")), str(block.get("result"))
            found.append({"role": "tool", "tool_call_id": name, "content": result})
        elif kind == "template":
            raise Unusable(TEMPLATE)
        elif kind != "thought":
            raise Unusable(f"a message holds a block of the type {str(kind)[:40]!r}")
    if texts or calls:
        said: dict[str, Any] = {"role": role, "content": "\n".join(texts) or None}
        found.append(said | ({"tool_calls": calls} if calls else {}))
    return found


def _output(given: Any) -> dict[str, Any]:
    """Return the assistant message of an output: blocks, or the JSON of a JSON function."""
    value = parsed(given)
    if isinstance(value, dict) and isinstance(value.get("raw"), str):
        return {"role": "assistant", "content": value["raw"]}
    if isinstance(value, str) and value.strip():
        return {"role": "assistant", "content": value}
    found = _messages({"role": "assistant", "content": value})
    if len(found) != 1:
        raise Unusable("its output holds no answer")
    return found[0]


def _text(block: Mapping[str, Any]) -> str:
    text = block.get("text", block.get("value"))
    if not isinstance(text, str):
        raise Unusable(TEMPLATE)
    return text


def _call(block: Mapping[str, Any]) -> dict[str, Any]:
    name = block.get("name") or block.get("raw_name")
    if not isinstance(name, str):
        raise Unusable("a tool call has no name")
    return tool_call(block.get("id"), name, block.get("arguments") or block.get("raw_arguments"))


def _blocks(given: Any) -> list[dict[str, Any]]:
    if not isinstance(given, list) or not all(isinstance(each, dict) for each in given):
        raise Unusable("the content of a message isn't a list of blocks")
    return given


def _tools(given: Any) -> tuple[dict[str, Any], ...]:
    params = parsed(given)
    tools = params.get("tools_available") if isinstance(params, dict) else None
    return tuple(
        {
            "type": "function",
            "function": {name: each[name] for name in ("name", "description", "parameters") if name in each},
        }
        for each in tools or ()
        if isinstance(each, dict)
    )
