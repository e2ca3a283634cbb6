"""Datasets for trainers: demonstrations (sft), preferences (dpo), ratings (kto), as messages or as texts. Pure."""

from __future__ import annotations

from typing import Any

import orjson

from burnish.parts.datasets.messages import answer_in, messages_of, moment_of, text_or_none, tools_in
from burnish.parts.datasets.parsed import FileRow, ForeignAnswer, ParsedExport, Statement, Unusable
from burnish.proxy.log.tree import digest


def read_sft(rows: list[FileRow], export: ParsedExport) -> None:
    """Read ``messages`` that end with the answer, or ``prompt`` and ``completion``."""
    for row in rows:
        with export.line(row):
            line = row.content
            if "messages" in line:
                *context, reply = messages_of(line["messages"])
                if reply["role"] != "assistant" or not context:
                    raise Unusable("messages must end with an answer of the assistant to something")
            else:
                context, reply = list(_prompt(line)), answer_in(line.get("completion"))
            answer = _answer(line, tuple(context), reply)
            export.add(row.place, answer, _statement(answer, value=1.0, demonstration=True))


def read_dpo(rows: list[FileRow], export: ParsedExport) -> None:
    """Read ``chosen`` and ``rejected``, with a ``prompt`` or both with the prompt in them."""
    for row in rows:
        with export.line(row):
            line = row.content
            chosen, rejected = line.get("chosen"), line.get("rejected")
            if line.get("prompt"):
                context = _prompt(line)
            else:
                context, chosen, rejected = _without_prompt(chosen, rejected)
            good, bad = (_answer(line, context, answer_in(message)) for message in (chosen, rejected))
            if good.name == bad.name:
                raise Unusable("chosen and rejected are the same")
            export.add(row.place, bad, good, _statement(good, better_than=bad.name))


def read_kto(rows: list[FileRow], export: ParsedExport) -> None:
    """Read ``prompt``, ``completion`` and ``label``."""
    for row in rows:
        with export.line(row):
            line = row.content
            if not isinstance(line.get("label"), bool):
                raise Unusable("label must be true or false")
            answer = _answer(line, _prompt(line), answer_in(line.get("completion")))
            export.add(row.place, answer, _statement(answer, value=1.0 if line["label"] else -1.0))


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


def _answer(
    line: dict[str, Any], context: tuple[dict[str, Any], ...], reply: dict[str, Any]
) -> ForeignAnswer:
    tools = tools_in(line.get("tools"))
    name = digest(orjson.dumps([context, reply, tools], option=orjson.OPT_SORT_KEYS)).hex()
    model = text_or_none(line.get("model"))
    return ForeignAnswer(name, context, reply, tools, moment_of(line.get("created_at")), model)


def _statement(answer: ForeignAnswer, **fields: Any) -> Statement:
    name = f"{answer.name}:{fields.get('better_than') or fields.get('value')}"
    return Statement(name, answer.name, created_at=answer.created_at, **fields)
