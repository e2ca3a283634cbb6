"""Datasets for trainers: demonstrations (sft), preferences (dpo), ratings (kto), as messages or as texts. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import takewhile
from typing import Any

import orjson

from burnish.parts.datasets.messages import (
    Message,
    answer_in,
    messages_of,
    moment_of,
    object_or_empty,
    text_or_none,
    tools_in,
    with_system,
)
from burnish.parts.datasets.parsed import FileRow, ForeignAnswer, ParsedExport, Statement, Unusable
from burnish.proxy.log.tree import digest

Context = tuple[Message, ...]
MESSAGES = ("messages", "conversations", "conversation")
PROMPTS = ("prompt", *MESSAGES, "instruction")
"""Members that hold what was asked, in the order in which they are looked for."""


def read_sft(rows: Iterable[FileRow], export: ParsedExport) -> None:
    """Read messages that end with the answer (OpenAI, TRL, ShareGPT), or a prompt and its answer (TRL, Alpaca).

    Each answer that has the ``weight`` 1 is a demonstration, and the last one unless its weight is 0.
    """
    for row in rows:
        with export.line(row):
            line = row.content
            answer = line.get("completion", line.get("output"))
            turns = [(_context(line), answer_in(answer))] if answer is not None else _weighted(line)
            for context, reply in turns:
                foreign = _answer(line, context, reply)
                export.add(row.place, foreign, _statement(foreign, value=1.0, demonstration=True))


def _weighted(line: dict[str, Any]) -> list[tuple[Context, Message]]:
    """Return the answers that an example teaches, with what is before each. Raises Unusable."""
    messages = _context(line)
    rows: list[Any] = next((line[name] for name in MESSAGES if isinstance(line.get(name), list)), [])
    beside = len(messages) - len(rows)  # a system prompt
    weights = [row.get("weight") if isinstance(row, dict) else None for row in rows]
    weights = [*[None] * beside, *weights] if beside in (0, 1) else [None] * len(messages)
    replies = [n for n, message in enumerate(messages) if n and message["role"] == "assistant"]
    last = len(messages) - 1
    turns = [(messages[:n], messages[n]) for n in replies if weights[n] or (weights[n] is None and n == last)]
    if not turns and any(weights[n] is not None for n in replies):
        raise Unusable("its answers have the weight 0, so none is a demonstration")
    if not turns:
        raise Unusable("messages must end with an answer of the assistant to something")
    return turns


def read_dpo(rows: Iterable[FileRow], export: ParsedExport) -> None:
    """Read ``chosen`` and ``rejected`` with a prompt, or both with the prompt in them; OpenAI's preferences, too."""
    for row in rows:
        with export.line(row):
            line = row.content
            if "preferred_output" in line:
                chosen, rejected = line["preferred_output"], line.get("non_preferred_output")
                line = object_or_empty(line.get("input"))
            else:
                chosen, rejected = line.get("chosen"), line.get("rejected")
            context = _context(line) if any(line.get(name) for name in PROMPTS) else ()
            context, chosen, rejected = _without_beginning(context, chosen, rejected)
            good, bad = (_answer(line, context, answer_in(message)) for message in (chosen, rejected))
            if good.name == bad.name:
                raise Unusable("chosen and rejected are the same")
            export.add(row.place, bad, good, _statement(good, better_than=bad.name))


def read_kto(rows: Iterable[FileRow], export: ParsedExport) -> None:
    """Read ``label`` with ``prompt`` and ``completion``, or with messages that end with the answer."""
    for row in rows:
        with export.line(row):
            line = row.content
            if line.get("label") not in (0, 1):  # and False, True
                raise Unusable("label must be true or false, or 1 or 0")
            if "completion" in line:
                context, reply = _context(line), answer_in(line["completion"])
            else:
                *before, last = _context(line)
                context, reply = tuple(before), answer_in(last)
            answer = _answer(line, context, reply)
            export.add(row.place, answer, _statement(answer, value=1.0 if line["label"] else -1.0))


def _context(line: dict[str, Any]) -> Context:
    """Return the messages of a line, with the system prompt and the history beside them. Raises Unusable."""
    if "instruction" in line:  # Alpaca
        texts = [text_or_none(line[name]) for name in ("instruction", "input") if line.get(name)]
        pairs = line.get("history") or []
        try:
            turns = [message for pair in pairs for message in zip(("user", "assistant"), pair, strict=True)]
        except (TypeError, ValueError) as error:
            raise Unusable("history must be a list of questions with their answers") from error
        history = [{"role": role, "content": text} for role, text in turns]
        question = {"role": "user", "content": "\n\n".join(filter(None, texts))}
        return with_system(line, messages_of([*history, question]))
    prompt = next((line[name] for name in PROMPTS if line.get(name)), None)
    if prompt is None:
        raise Unusable("prompt is missing")
    return with_system(line, messages_of(prompt))


def _without_beginning(context: Context, chosen: Any, rejected: Any) -> tuple[Context, Any, Any]:
    """Move the messages that both begin with behind the prompt, unless they are its end. Raises Unusable."""
    if not isinstance(chosen, list) or not isinstance(rejected, list):
        if not context:
            raise Unusable("prompt is missing")
        return context, chosen, rejected
    good, bad = messages_of(chosen), messages_of(rejected)
    same = len(list(takewhile(lambda pair: pair[0] == pair[1], zip(good[:-1], bad[:-1], strict=False))))
    beginning = good[:same]
    if context[len(context) - same :] != beginning:
        inside = context in (beginning[: len(context)], beginning[same - len(context) :])
        context = beginning if inside else context + beginning
    if not context:
        raise Unusable("chosen and rejected must begin with the same prompt and end with one answer each")
    return context, list(good[same:]), list(bad[same:])


def _answer(line: dict[str, Any], context: Context, reply: Message) -> ForeignAnswer:
    functions = [{"type": "function", "function": function} for function in line.get("functions") or ()]
    tools = tools_in(line.get("tools") or functions)
    name = digest(orjson.dumps([context, reply, tools], option=orjson.OPT_SORT_KEYS)).hex()
    model = text_or_none(line.get("model"))
    return ForeignAnswer(name, context, reply, tools, moment_of(line.get("created_at")), model)


def _statement(answer: ForeignAnswer, **fields: Any) -> Statement:
    name = f"{answer.name}:{fields.get('better_than') or fields.get('value')}"
    return Statement(name, answer.name, created_at=answer.created_at, **fields)
