"""``burnish status``, ``history``, ``regenerations`` and ``raters``."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.filesize import decimal
from rich.markup import escape
from rich.table import Table

from burnish.proxy.cli.client import Proxy
from burnish.proxy.cli.errors import WrongUsage
from burnish.proxy.cli.terminal import Json, Url, clock, console, printed_json, short, verdict
from burnish.proxy.cli.train import left_out

SHOWN_LEAST = 20
"""Fewest characters of a question and of an answer, however narrow the terminal is."""


def status(url: Url = None, as_json: Json = False) -> None:
    proxy = Proxy(url)
    state = proxy.get("/burnish/status")
    if printed_json(state | {"url": proxy.url}, as_json):
        return
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim")
    table.add_column()
    for name, text in _lines(state, proxy.url):
        table.add_row(name, text)
    console.print(table)


def _lines(state: dict[str, Any], url: str) -> list[tuple[str, str]]:
    counts, learner, live = state["counts"], state["learner"], state["live"]
    lines = [
        ("burnish", f"{state['version']} at {escape(url)}"),
        ("upstream", escape(state["upstream"])),
        ("live", _live(live, replicas=state["upstream"].count(",") + 1)),
        ("answers", f"{counts['completions']} in {counts['conversations']} conversations"),
        (
            "ratings",
            f"{counts['ratings']} ([green]{counts['good']} good[/], [red]{counts['bad']} bad[/]), "
            f"{counts['comments']} with a comment",
        ),
    ]
    if others := counts["passthrough"]:
        passed = f"{others} other requests passed through: burnish history --passthrough"
        lines.insert(-1, ("other", passed))
    if ready := learner.get("ready"):
        needed = learner["needed"]
        lines.append(
            (
                "ready",
                f"{ready['new']} new of {needed['new']}, {ready['good']} good of {needed['good']}, "
                f"{ready['bad']} bad of {needed['bad']}; or {ready['comments']} comments of {needed['comments']}"
                + (f"; {ready['pairs']} corrections and preferences" if ready["pairs"] else ""),
            )
        )
        if missing := left_out(learner):
            lines.append(("", escape(missing)))
    if live["name"]:
        lines.append(("swapping", _swapping(state["engine"].get("obstacle"))))
    lines.append(("training", f"{learner['state']}: {escape(learner['reason'])}"))
    if state["instructions"]["on"] or state["instructions"]["count"]:
        lines.append(("instructions", _instructions(state["instructions"])))
    if step := (learner.get("run") or {}).get("progress"):
        lines.append(("progress", f"step {step['step']} of {step['steps']}, KL {step['kl_per_token']:.3f}"))
    for trouble in (state["engine"]["trouble"], state["log"]["trouble"]):
        if trouble:
            lines.append(("trouble", f"[red]{escape(trouble)}[/]"))
    return lines


def _swapping(obstacle: str | None) -> str:
    if obstacle is None:
        return "versions can be swapped in this engine"
    return f"[yellow]versions can't be swapped yet[/]: {escape(obstacle)}"


def _instructions(instructions: dict[str, Any]) -> str:
    count = instructions["count"]
    if instructions["on"]:
        return f"{count} in the system prompt: burnish instructions"
    return f"you have {count}, but they are off: set instructions = true to add them to the system prompt"


def _live(live: dict[str, Any], replicas: int) -> str:
    if not live["name"]:
        return "–"
    where = f" on {len(live['served_by'])} of {replicas} replicas" if replicas > 1 else ""
    return f"[bold]{escape(live['name'])}[/]{where}"


def history(
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=1000, help="How many.")] = 20,
    before: Annotated[str | None, typer.Option(help="Show only records older than this ID.")] = None,
    conversation: Annotated[str | None, typer.Option(help="Only this conversation.")] = None,
    passthrough: Annotated[
        bool, typer.Option("--passthrough", help="Show other requests instead: embeddings, audio, files …")
    ] = False,
    url: Url = None,
    as_json: Json = False,
) -> None:
    if passthrough and conversation:
        raise WrongUsage(
            "use --passthrough or --conversation, not both: only completions belong to a conversation"
        )
    if passthrough:
        page = Proxy(url).get("/burnish/passthrough", limit=limit, before=before)
    else:
        page = Proxy(url).get("/burnish/completions", limit=limit, before=before, conversation=conversation)
    if printed_json(page, as_json):
        return
    for each in page["data"]:
        (_show_passthroughs if passthrough else _show)(each)
    if not page["data"]:
        console.print(f"[dim]no {'other requests' if passthrough else 'answers'} yet[/]")
    if page["has_more"]:
        again = "burnish history --passthrough" if passthrough else "burnish history"
        console.print(f"[dim]more: {again} --before {page['data'][-1]['id']}[/]", soft_wrap=True)


def _show_passthroughs(passthrough: dict[str, Any]) -> None:
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
    for each in page["data"]:
        kept = {each["completion_id"]: "the second was kept", each["instead_of"]: "the first was kept"}
        console.print(f"[yellow]regenerated[/]  {kept.get(each['went_on_from'], 'neither was kept')}")
        for answer in (each["instead_of"], each["completion_id"]):
            _show(proxy.get(f"/burnish/completions/{answer}"))
    if not page["data"]:
        console.print("[dim]no regenerated answers yet[/]")
    if page["has_more"]:
        last = page["data"][-1]["completion_id"]
        console.print(f"[dim]more: burnish regenerations --before {last}[/]", soft_wrap=True)


def raters(url: Url = None, as_json: Json = False) -> None:
    """A rater who agrees with the others no more often than chance rates by other standards. Set `train.rater_weights`
    to give each rater more or less weight.
    """
    found = Proxy(url).get("/burnish/raters")
    if printed_json(found, as_json):
        return
    if not found["data"]:
        console.print("[dim]no answers are rated yet[/]")
        return
    table = Table("rater", box=None, pad_edge=False)
    for name in ("rated", "good", "bad", "weight", "agrees with the others"):
        table.add_column(name, justify="right")
    for each in found["data"]:
        table.add_row(
            f"[bold]{escape(each['name'])}[/]",
            str(each["good"] + each["bad"]),
            f"[green]{each['good']}[/]",
            f"[red]{each['bad']}[/]",
            f"{each['weight']:g}",
            _agreement(each),
        )
    console.print(table)


def _agreement(rater: dict[str, Any]) -> str:
    if not rater["compared"]:
        return "[dim]no other ratings of these answers[/]"
    return f"{rater['agreed']} of {rater['compared']} [dim]({rater['by_chance']:.1f} by chance)[/]"


def _show(completion: dict[str, Any]) -> None:
    """Print two lines: IDs stay whole and texts readable on a narrow terminal."""
    words = f"{verdict(completion['rating'])}  " if completion["rating"] is not None else ""
    words += "[yellow]with instructions[/]  " if completion["instructions"] else ""
    words += "[yellow]holds a key or token[/]  " if completion["holds_credential"] else ""
    console.print(
        f"[bold]{completion['id']}[/]  {clock(completion['created_at'])}  {words}"
        f"[dim]{escape(completion['model_served'])}[/]",
        soft_wrap=True,
    )
    room = max(console.width - len("  › "), 2 * SHOWN_LEAST)
    asked = short(completion["prompt"], room // 3)
    console.print(f"  [dim]{asked} ›[/] {short(_answer(completion), room - room // 3)}", soft_wrap=True)
    for choice in completion["choices"][1:]:
        words = f"{verdict(choice['rating'])}  " if choice["rating"] is not None else ""
        answer = short(_answer(completion | choice), room - room // 3)
        console.print(f"  [dim]choice {choice['index']} ›[/] {words}{answer}", soft_wrap=True)


def _answer(completion: dict[str, Any]) -> str:
    reply = completion["reply"] or {}
    calls = [f"{call['function']['name']}()" for call in reply.get("tool_calls") or () if "function" in call]
    return str(reply.get("content") or ", ".join(calls) or completion["error"] or completion["outcome"])
