"""``burnish history``, ``show`` and ``regenerations``."""

from __future__ import annotations

from collections.abc import Iterator
from shlex import quote
from typing import Annotated, Any

import typer
from rich.filesize import decimal
from rich.markup import escape

from burnish.cli.show import print_facts
from burnish.proxy.records import SIGNAL
from burnish.terminal.client import Proxy, in_path
from burnish.terminal.errors import WrongUsage
from burnish.terminal.terminal import (
    Json,
    Url,
    clock,
    console,
    printed_json,
    rated,
    short,
    verdict,
    version_name,
)

SHOWN_LEAST = 20
"""Fewest characters of a question and of an answer, however narrow the terminal is."""
SHOWN_OF_COMMENT = 200
"""Characters of a comment or a correction in a list."""
MAX_TEXT = 100_000
"""Longest comment or correction."""
OK = 200
QUERY = {"search": "q"}
"""Options whose member of the query has another name."""


def history(
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=1000, help="How many.")] = 20,
    before: Annotated[str | None, typer.Option(help="Show only records older than this ID.")] = None,
    conversation: Annotated[str | None, typer.Option(help="Only this conversation.")] = None,
    rater: Annotated[
        str | None, typer.Option(help="Only answers that this rater said something about.")
    ] = None,
    rating: Annotated[
        str | None,
        typer.Option(
            help="Only good, bad, unrated or commented answers; with --rater: what this rater said.",
        ),
    ] = None,
    version: Annotated[str | None, typer.Option(help="Only answers of this version: 3, v3 or base.")] = None,
    agent: Annotated[
        str | None, typer.Option(help="Only answers to this program, such as claude-code.")
    ] = None,
    failed: Annotated[
        bool, typer.Option("--failed", help="Only errors, and answers that broke off.")
    ] = False,
    search: Annotated[
        str | None, typer.Option(help="Only answers with these words in the question or the reply.")
    ] = None,
    passthrough: Annotated[
        bool, typer.Option("--passthrough", help="Show other requests instead: embeddings, audio, files …")
    ] = False,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Filters by rating list the answers that were named; others of the same turn are in `burnish show`."""
    filters = {"conversation": conversation, "rater": rater, "rating": rating, "version": version}
    filters |= {"agent": agent, "failed": "true" if failed else None, "search": search}
    criteria = {name: text for name, text in filters.items() if text is not None}
    if passthrough and criteria:
        name = next(iter(criteria))
        raise WrongUsage(f"use --passthrough or --{name}, not both: only answers have a {name}")
    path = "/burnish/passthrough" if passthrough else "/burnish/completions"
    query = {QUERY.get(name, name): text for name, text in criteria.items()}
    page = Proxy(url).get(path, limit=limit, before=before, **query)
    if printed_json(page, as_json):
        return
    for record in page["data"]:
        (_list_passthrough if passthrough else _list)(record)
    if not page["data"]:
        console.print(f"[dim]{_nothing(passthrough, criteria)}[/]")
    if page["has_more"]:
        options = ["--passthrough"] if passthrough else []
        options += [
            "--failed" if name == "failed" else f"--{name} {quote(text)}" for name, text in criteria.items()
        ]
        again = " ".join(["burnish history", *options, f"--before {page['data'][-1]['id']}"])
        console.print(f"[dim]more: {escape(again)}[/]", soft_wrap=True)


def _nothing(passthrough: bool, criteria: dict[str, str]) -> str:
    if not criteria:
        return f"no {'other requests' if passthrough else 'answers'} yet"
    commands = {"rater": "burnish raters", "version": "burnish adapters list"}
    lists = [f"{name}s: {command}" for name, command in commands.items() if name in criteria]
    return "; ".join(["no answer is like that", *lists])


def _list_passthrough(passthrough: dict[str, Any]) -> None:
    """Print one line, and a second one for an error."""
    size = f"{decimal(passthrough['request_bytes'])} → {decimal(passthrough['response_bytes'])}"
    tokens = f"  {passthrough['prompt_tokens']} tokens" if passthrough["prompt_tokens"] else ""
    console.print(
        f"[bold]{passthrough['id']}[/]  {clock(passthrough['created_at'])}  {passthrough['method']} "
        f"{escape(passthrough['path'])}  {passthrough['status'] or passthrough['outcome']}  "
        f"{passthrough['total_s']:.2f} s  {size}{tokens}  "
        f"[dim]{escape(passthrough['model'] or '')}[/]",
        soft_wrap=True,
    )
    if passthrough["error"]:
        ended_well = passthrough["outcome"] == "complete"
        label = "[yellow]note[/]" if ended_well else f"[red]{passthrough['outcome']}[/]"
        console.print(f"  {label}: {escape(passthrough['error'])}", soft_wrap=True)


def regenerations(
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=1000, help="How many.")] = 20,
    before: Annotated[str | None, typer.Option(help="Show only records older than this ID.")] = None,
    conversation: Annotated[str | None, typer.Option(help="Only this conversation.")] = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Burnish doesn't learn from this by itself. To make it, send `POST /v1/feedback` with `preferred_over`."""
    proxy = Proxy(url)
    page = proxy.get("/burnish/regenerations", limit=limit, before=before, conversation=conversation)
    if printed_json(page, as_json):
        return
    for pair in page["data"]:
        outcomes = {pair["completion_id"]: "the second was kept", pair["instead_of"]: "the first was kept"}
        console.print(f"[yellow]regenerated[/]  {outcomes.get(pair['went_on_from'], 'neither was kept')}")
        for answer in (pair["instead_of"], pair["completion_id"]):
            _list(proxy.get(f"/burnish/completions/{answer}"))
    if not page["data"]:
        console.print("[dim]no regenerated answers yet[/]")
    if page["has_more"]:
        last = page["data"][-1]["completion_id"]
        console.print(f"[dim]more: burnish regenerations --before {last}[/]", soft_wrap=True)


def show(
    identifier: Annotated[
        str, typer.Argument(metavar="ID", help="ID of the answer (burnish's or the upstream's).")
    ],
    url: Url = None,
    as_json: Json = False,
) -> None:
    completion = Proxy(url).get(f"/burnish/completions/{in_path(identifier)}")
    if printed_json(completion, as_json):
        return
    print_facts(_facts(completion))
    _print_text("prompt", completion["prompt"])
    for choice in completion["choices"] or [completion | {"index": 0}]:
        name = f"reply {choice['index']}" if completion["choices"] else "reply"
        _print_text(name, _answer(completion | {"reply": choice["reply"]}))
    if completion["feedback"]:
        console.print("\n[dim]feedback[/]")
    for feedback in completion["feedback"]:
        line = f"  [bold]{feedback['id']}[/]  {clock(feedback['created_at'])}  {_said(feedback, MAX_TEXT)}"
        console.print(line, soft_wrap=True)
        console.print(f"    {_teaches(feedback)}", soft_wrap=True)


def _facts(completion: dict[str, Any]) -> Iterator[tuple[str, str]]:
    yield "answer", f"[bold]{completion['id']}[/]  {clock(completion['created_at'])}"
    if completion["response_id"]:
        yield "response", escape(completion["response_id"])
    yield "conversation", completion["conversation_id"]
    yield (
        "asked by",
        escape(
            completion["caller"] + (f", session {completion['session']}" if completion["session"] else "")
        ),
    )
    yield "answered by", escape(f"{completion['model_served']} at {completion['upstream']}")
    if completion["adapter_version"] is not None:
        yield "version", version_name(completion["adapter_version"])
    tokens = [
        f"{completion[name]} {name.partition('_')[0]}"
        for name in ("prompt_tokens", "completion_tokens")
        if completion[name]
    ]
    if tokens:
        yield "tokens", " + ".join(tokens)
    if captured := completion["tokens"]:
        counts = f"{captured['prompt']} of the prompt + {captured['reply']} of the reply"
        yield "token ids", escape(f"none: {captured['missing']}") if captured["missing"] else counts
    yield "ended", _ended(completion) or escape(completion["finish_reason"] or completion["outcome"])
    if completion["rated"]:
        yield "rating", rated(completion)
    if completion["reward"] is not None:
        yield "reward", f"{completion['reward']:.2f} by {completion['rewarded_by']}"
    if completion["best_of"]:
        delivery = (
            "[yellow]not sent[/], but " + completion["best_of"]
            if _unsent(completion)
            else "sent as the best of several"
        )
        yield "best of", delivery
    if not completion["usable"]:
        yield "teaches", f"[yellow]nothing[/]: {escape(completion['reason'])}"


def _print_text(name: str, text: str) -> None:
    console.print(f"\n[dim]{name}[/]")
    console.print(escape(text), soft_wrap=True)


def _list(completion: dict[str, Any]) -> None:
    """Print two lines, and one for each comment: IDs stay whole and texts readable on a narrow terminal."""
    words = f"{rated(completion)}  " if completion["rated"] else ""
    words += f"{failed}  " if (failed := _ended(completion)) else ""
    words += f"[dim]reward {completion['reward']:.2f}[/]  " if completion["reward"] is not None else ""
    words += "[dim]not sent: another one was better[/]  " if _unsent(completion) else ""
    words += "[yellow]with instructions[/]  " if completion["instructions"] else ""
    words += "[yellow]holds a key or token[/]  " if completion["holds_credential"] else ""
    console.print(
        f"[bold]{completion['id']}[/]  {clock(completion['created_at'])}  {words}"
        f"[dim]{escape(completion['model_served'])}[/]",
        soft_wrap=True,
    )
    room = max(console.width - len("  › "), 2 * SHOWN_LEAST)
    prompt = short(completion["prompt"], room // 3)
    console.print(f"  [dim]{prompt} ›[/] {short(_answer(completion), room - room // 3)}", soft_wrap=True)
    for choice in completion["choices"][1:]:
        words = f"{rated(choice)}  " if choice["rated"] else ""
        answer = short(_answer(completion | choice), room - room // 3)
        console.print(f"  [dim]choice {choice['index']} ›[/] {words}{answer}", soft_wrap=True)
    for feedback in completion["feedback"]:
        if feedback["undone_at"]:
            continue
        if any(feedback[name] for name in ("comment", "correction", "preferred_over", "reason")) or _read(
            feedback
        ):
            why = f" – {_teaches(feedback)}" if feedback["reason"] else ""
            console.print(f"  [dim]feedback ›[/] {_said(feedback, SHOWN_OF_COMMENT)}{why}", soft_wrap=True)


def _said(feedback: dict[str, Any], limit: int) -> str:
    """Return what one piece of feedback says, and who said it if it wasn't the user of this machine."""
    names = ("comment", "correction", "preferred_over", "rater")
    texts = {name: short(feedback[name], limit) for name in names}
    parts = [
        verdict(feedback["reward"], feedback["scale"]),
        f"“{texts['comment']}”" if feedback["comment"] else "",
        f"wanted: “{texts['correction']}”" if feedback["correction"] else "",
        f"better than {texts['preferred_over']}" if feedback["preferred_over"] else "",
        f"({escape(_read(feedback))})" if _read(feedback) else "",
        f"[dim]by {texts['rater']}[/]" if feedback["rater"] != "local" else "",
    ]
    return " ".join(filter(None, parts))


def _read(feedback: dict[str, Any]) -> str:
    """Return what burnish read from results of tools, if the feedback comes from that."""
    kind, *words = feedback["tags"] or [""]
    return " ".join(words) if kind.startswith(SIGNAL) and feedback["source"] == "environment" else ""


def _teaches(feedback: dict[str, Any]) -> str:
    reason = escape(feedback["reason"] or "")
    if not feedback["usable"]:
        return f"[yellow]teaches nothing[/]: {reason}"
    if feedback["learnt_by"]:
        return f"learnt by v{feedback['learnt_by']}" + (f"; {reason}" if reason else "")
    return reason or "not learnt yet"


def _unsent(completion: dict[str, Any]) -> bool:
    """Return whether another one of several answers was sent instead."""
    return completion["best_of"] not in (None, completion["id"])


def _ended(completion: dict[str, Any]) -> str | None:
    """Return how a completion failed, if it did."""
    if completion["outcome"] != "complete":
        return f"[red]{completion['outcome']}[/]"
    return f"[red]error {completion['status']}[/]" if completion["status"] != OK else None


def _answer(completion: dict[str, Any]) -> str:
    """Return the text of a reply, else its calls, else why there is none."""
    reply = completion["reply"]
    if reply is None:
        return f"no answer: {completion['error'] or completion['outcome']}"
    calls = [f"{call['function']['name']}()" for call in reply.get("tool_calls") or () if "function" in call]
    return str(reply.get("content") or ", ".join(calls) or "an empty answer")
