"""``burnish judge``: AI feedback by written principles, and the reports of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from burnish.system.regular import SETTINGS_BYTES, check_regular
from burnish.terminal.client import Proxy
from burnish.terminal.errors import CommandFailed, WrongUsage
from burnish.terminal.terminal import Json, Url, clock, console, printed_json, short

app = typer.Typer(invoke_without_command=True, add_completion=False, rich_markup_mode=None)

PATH = "/burnish/judge"
# One answer takes a judge four requests, each up to three minutes.
TIMEOUT_S = 900.0
SHOWN_CRITIQUE = 200
OUTCOMES = {
    "revision": "[red]its own revision is better[/]",
    "reply": "[green]the reply is better than its revision[/]",
    "tie": "[yellow]a tie: the order decided, or neither is better[/]",
    "faultless": "[green]nothing to criticise[/]",
    "unchanged": "[yellow]its revision is the same[/]",
    "failed": "[red]failed[/]",
}
SHARES = {
    "ties": "ties among the comparisons",
    "longer_preferred": "preferences for the longer one",
    "first_picked": "the first place, when it picked the same place in both orders",
}


@app.callback()
def judge(
    context: typer.Context,
    count: Annotated[int, typer.Option("--count", "-n", min=1, max=1000, help="How many answers.")] = 20,
    model: Annotated[
        str | None,
        typer.Option(
            help="The judge: any model that burnish reaches, also in [upstreams.NAME]; default: the base model."
        ),
    ] = None,
    principles: Annotated[
        Path | None,
        typer.Option(help="File with the principles; default: principles.md in the data directory."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be judged. The judge isn't asked.")
    ] = False,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """The judge criticises an answer, writes a better one, and says which of both follows the principles better.

    Only what it says in both orders becomes feedback: a preference with the source `judge`, which weighs .3.
    It is asked about the latest answers that no person said anything of. Exits 1 if it failed on any.
    """
    if context.invoked_subcommand:
        return
    body = {"count": count, "model": model, "dry_run": dry_run or None, "principles": _text(principles)}
    lines = _lines(Proxy(url, TIMEOUT_S), body)
    if as_json:
        objects = list(lines)
        printed_json(objects[0] if dry_run else objects[-1] | {"judgements": objects[1:-1]}, as_json=True)
    else:
        _print_plan(plan := next(lines), dry_run=dry_run)
        objects = [plan, *_shown(lines, plan["count"])]
    _demand_success(objects[-1])


@app.command()
def reports(
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=200, help="How many.")] = 10,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """List what earlier judgings found: ties, biases, failures, and how often people agree with the judge."""
    reports = Proxy(url).get(PATH, limit=limit)
    if printed_json(reports, as_json):
        return
    for report in reports["data"]:
        console.print(f"[bold]{clock(report['created_at'])}[/]  {escape(report['model'])}", soft_wrap=True)
        _print_report(report)
    if not reports["data"]:
        console.print("[dim]nothing was judged yet: burnish judge[/]")
    agreement = reports["agreement"]
    if agreement["of"]:
        console.print(f"agreement with people, on answers that both judged: {_share(agreement)}")


def _text(path: Path | None) -> str | None:
    """Raises WrongUsage."""
    if path is None:
        return None
    try:
        check_regular(path, SETTINGS_BYTES)
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise WrongUsage(f"{path} can't be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise WrongUsage(f"{path} isn't a UTF-8 text ({error.reason} at byte {error.start})") from error


def _lines(proxy: Proxy, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the objects of the answer as they arrive. Raises CommandFailed."""
    settings = {name: setting for name, setting in body.items() if setting is not None}
    with proxy.stream(PATH, settings) as response:
        buffer = b""
        for chunk in proxy.chunks(response):
            *lines, buffer = (buffer + chunk).split(b"\n")
            for line in lines:
                event: dict[str, Any] = json.loads(line)
                if "error" in event:
                    raise CommandFailed(str(event["error"]["message"]))
                yield event


def _print_plan(plan: dict[str, Any], *, dry_run: bool) -> None:
    verb = "would judge" if dry_run else "judges"
    console.print(f"{escape(plan['model'])} {verb} {_answers(plan['count'])} by these principles:")
    for number, text in enumerate(plan["principles"], 1):
        console.print(f"  {number}. {escape(text)}", soft_wrap=True)
    for reason, count in plan["left_out"].items():
        console.print(f"[dim]left out: {_answers(count)}: {escape(reason)}[/]", soft_wrap=True)
    if not plan["count"]:
        console.print("[yellow]there is no answer to judge: ask the model something first[/]")


def _shown(lines: Iterator[dict[str, Any]], count: int) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(lines, 1):
        if line["object"] == "judgement":
            console.print(
                f"[dim]{number} of {count}[/]  [bold]{line['completion_id']}[/]  {OUTCOMES[line['outcome']]}",
                soft_wrap=True,
            )
            if words := line["details"] or line["critique"]:
                console.print(f"    [dim]{short(words, SHOWN_CRITIQUE)}[/]", soft_wrap=True)
        elif count:
            _print_report(line)
        yield line


def _print_report(report: dict[str, Any]) -> None:
    outcomes = report["outcomes"]
    console.print(
        f"{_answers(report['asked'])} judged. Revision preferred: {outcomes['revision']} · reply preferred: "
        f"{outcomes['reply']} · ties: {outcomes['tie']} · without fault: {outcomes['faultless']} · "
        f"unchanged: {outcomes['unchanged']} · failed: {outcomes['failed']} · stored as feedback: {report['stored']}",
        soft_wrap=True,
    )
    for name, words in SHARES.items():
        if report[name]["of"]:
            console.print(f"{words}: {_share(report[name])}", soft_wrap=True)
    for kind, count in report["faults"].items():
        first = short(report["first_faults"][kind], SHOWN_CRITIQUE)
        console.print(f"[red]failed {count} ×[/] {first}", soft_wrap=True)
    for warning in report["warnings"]:
        console.print(f"[yellow]{escape(warning)}[/]", soft_wrap=True)
    if report["ended"]:
        console.print(f"[red]not all were judged: {escape(report['ended'])}[/]", soft_wrap=True)


def _share(share: dict[str, Any]) -> str:
    return f"{share['count']} of {share['of']} ({share['lower']:.0%} to {share['upper']:.0%})"


def _answers(count: int) -> str:
    return "1 answer" if count == 1 else f"{count} answers"


def _demand_success(last: dict[str, Any]) -> None:
    """Raise CommandFailed if the judge failed, or didn't come to its end."""
    if last["object"] == "judge_plan":
        return
    if last["object"] != "judge_report":
        raise CommandFailed("burnish ended before the judge did; what is shown as preferred is stored")
    if failed := last["outcomes"]["failed"]:
        raise CommandFailed(
            f"the judge failed on {failed} of {_answers(last['asked'])}, for which nothing was stored. A larger "
            "model may do better: burnish judge --model NAME"
        )
