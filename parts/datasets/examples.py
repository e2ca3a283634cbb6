"""Datasets for trainers: demonstrations (sft), preferences (dpo), ratings (kto), as messages or as texts. Pure."""

from __future__ import annotations

from typing import Any

import orjson

from burnish.parts.datasets.found import Answer, Found, Item, Said, Unusable
from burnish.parts.datasets.messages import answer_in, messages_of, moment_of, text_or_none, tools_in
from burnish.proxy.log.tree import digest


def read_sft(items: list[Item], found: Found) -> None:
    """Read ``messages`` that end with the answer, or ``prompt`` and ``completion``."""
    for item in items:
        with found.line(item):
            line = item.content
            if "messages" in line:
                *context, answer = messages_of(line["messages"])
                if answer["role"] != "assistant" or not context:
                    raise Unusable("messages must end with an answer of the assistant to something")
            else:
                context, answer = list(_prompt(line)), answer_in(line.get("completion"))
            made = _answer(line, tuple(context), answer)
            found.add(item.place, made, _said(made, value=1.0, demonstration=True))


def read_dpo(items: list[Item], found: Found) -> None:
    """Read ``chosen`` and ``rejected``, with a ``prompt`` or both with the prompt in them."""
    for item in items:
        with found.line(item):
            line = item.content
            chosen, rejected = line.get("chosen"), line.get("rejected")
            if line.get("prompt"):
                context = _prompt(line)
            else:
                context, chosen, rejected = _without_prompt(chosen, rejected)
            good, bad = (_answer(line, context, answer_in(each)) for each in (chosen, rejected))
            if good.name == bad.name:
                raise Unusable("chosen and rejected are the same")
            found.add(item.place, bad, good, _said(good, better_than=bad.name))


def read_kto(items: list[Item], found: Found) -> None:
    """Read ``prompt``, ``completion`` and ``label``."""
    for item in items:
        with found.line(item):
            line = item.content
            if not isinstance(line.get("label"), bool):
                raise Unusable("label must be true or false")
            made = _answer(line, _prompt(line), answer_in(line.get("completion")))
            found.add(item.place, made, _said(made, value=1.0 if line["label"] else -1.0))


def _prompt(line: dict[str, Any]) -> tuple[dict[str, Any], ...]:
    if not line.get("prompt"):
        raise Unusable("prompt is missing")
    return messages_of(line["prompt"])


def _without_prompt(chosen: Any, rejected: Any) -> tuple[tuple[dict[str, Any], ...], Any, Any]:
    """Take the messages that both begin with for the prompt. Raises Unusable."""
    if not isinstance(chosen, list) or not isinstance(rejected, list):
        raise Unusable("prompt is missing")
    good, bad = messages_of(chosen), messages_of(rejected)
    if len(good) < 2 or good[:-1] != bad[:-1]:  # noqa: PLR2004 – a question and its answer
        raise Unusable("chosen and rejected must begin with the same prompt and end with one answer each")
    return good[:-1], good[-1], bad[-1]


def _answer(line: dict[str, Any], context: tuple[dict[str, Any], ...], reply: dict[str, Any]) -> Answer:
    tools = tools_in(line.get("tools"))
    name = digest(orjson.dumps([context, reply, tools], option=orjson.OPT_SORT_KEYS)).hex()
    model = text_or_none(line.get("model"))
    return Answer(name, context, reply, tools, moment_of(line.get("created_at")), model)


def _said(answer: Answer, **more: Any) -> Said:
    name = f"{answer.name}:{more.get('better_than') or more.get('value')}"
    return Said(name, answer.name, created_at=answer.created_at, **more)
