"""``burnish adapters``: list, show, promote and roll back versions."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

from burnish.cli.watch import follow, latest_run
from burnish.terminal.client import Proxy
from burnish.terminal.errors import WrongUsage
from burnish.terminal.terminal import Json, Url, console, printed_json, short, version_name


class VersionFormat(StrEnum):
    peft = "peft"
    gguf = "gguf"
    mlx = "mlx"
    merged_gguf = "merged-gguf"
    merged_hf = "merged-hf"


# Merging a model of 8B writes 9 GB, and Ollama may get them over a network.
MERGE_LIMIT_S = 3600.0

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None)

Number = Annotated[
    str, typer.Argument(metavar="N", help='A version such as 7 or v7; "base" is the base model.')
]
Reason = Annotated[str | None, typer.Option(help="Reason to keep in the history.")]

STYLES = {
    "live": "bold green",
    "rejected": "red",
    "retired": "dim",
    "pruned": "dim",
    "candidate": "yellow",
    "waiting": "bold yellow",
}
MARKS = {True: "[green]✓[/]", False: "[red]✗[/]", None: "[dim]·[/]"}
OUTCOMES = {"passed": "green", "rejected": "red", "undecided": "yellow"}
# Columns needed to read two replies side by side.
WIDE = 100
SIDES = ("before", "after")


def learnt_from(version: dict[str, Any]) -> str:
    if version["episodes"]:
        return f"{version['episodes']} rollouts, mean reward {version['reward']:.2f}"
    return "1 rating" if version["ratings"] == 1 else f"{version['ratings']} ratings"


@app.command("list")
def list_(url: Url = None, as_json: Json = False) -> None:
    """List all versions."""
    proxy = Proxy(url)
    registry = proxy.get("/burnish/adapters")
    if printed_json(registry, as_json):
        return
    waits = registry.get("waiting")
    columns = ("version", "state", "from", "learnt from", "why")
    table = Table(*columns, box=None, header_style="dim", pad_edge=False)
    base = "[bold green]live[/]" if registry["live"] == 0 else "[dim]available[/]"
    table.add_row("base", base, "", "", "[dim]the base model[/]")
    for version in registry["adapters"]:
        state = "waiting" if version["version"] == waits else version["state"]
        table.add_row(
            f"v{version['version']}",
            f"[{STYLES.get(state, '')}]{state}[/]",
            version_name(version["parent"]),
            learnt_from(version),
            short(version["reason"], 100),
        )
    console.print(table)
    if waits:
        console.print(f"v{waits} waits for you; make it live: [cyan]burnish adapters promote[/]")
    if (run := latest_run(proxy)) and run["status"] == "interrupted":
        console.print(f"the last run was {escape(run['reason'])}")


@app.command()
def show(number: Number, url: Url = None, as_json: Json = False) -> None:
    """Show the origin of a version, the verdict of the gate, and replies before and after."""
    version = Proxy(url).get(f"/burnish/adapters/{read_number(number)}")
    if printed_json(version, as_json):
        return
    state = f"{version['state']}: {escape(version.get('reason', ''))}"
    console.print(f"[bold]{escape(version['name'])}[/]  {state}")
    if manifest := version["manifest"]:
        metrics = manifest["metrics"]
        console.print(
            f"[dim]made {manifest['created_at']} by {manifest['run_id']} from {version_name(manifest['parent'])}, "
            f"{learnt_from(version)}, {manifest['objective']}, {metrics.get('seconds', 0):.0f} s, "
            f"{metrics.get('peak_rss_bytes', 0) / 1e9:.2f} GB[/]"
        )
    if version.get("verdict"):
        _explain(version["verdict"])
    console.print("\n[dim]history[/]")
    for event in version["events"]:
        moment = event["at"][:19].replace("T", " ")
        console.print(f"  [dim]{moment}[/]  {event['state']}: {escape(event['reason'])}")


@app.command()
def promote(
    number: Annotated[
        str | None,
        typer.Argument(metavar="[N|base]", help="Version to make live; default: the one that waits."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Promote it even if the gate rejected it.")] = False,
    reason: Reason = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Make a version live."""
    path = "promote" if number is None else f"{read_number(number)}/promote"
    body = {"force": force, "reason": reason}
    _changed(Proxy(url, MERGE_LIMIT_S).post(f"/burnish/adapters/{path}", body), as_json)


@app.command()
def judge(
    number: Number,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the verdict.")] = False,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Have the gate judge a candidate once more, such as after held-out rollouts."""
    proxy = Proxy(url)
    started = proxy.post(f"/burnish/adapters/{read_number(number)}/judge", {})
    if not wait:
        if not printed_json(started, as_json):
            console.print("judging has begun; to watch it: [cyan]burnish watch[/]")
        return
    follow(proxy, started["run_id"], as_json=as_json)


@app.command()
def rollback(
    number: Annotated[
        str | None,
        typer.Argument(metavar="[N|base]", help="Version to go back to; default: the previous one."),
    ] = None,
    reason: Reason = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Go back to an earlier version or to the base model at once."""
    to = None if number is None else read_number(number)
    body = {"to": to, "reason": reason}
    _changed(Proxy(url, MERGE_LIMIT_S).post("/burnish/adapters/rollback", body), as_json)


@app.command("import")
def import_(
    path: Annotated[Path, typer.Argument(help="A PEFT or MLX directory, or a GGUF adapter.")],
    reason: Reason = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Add an adapter that was trained elsewhere; `promote` makes it live."""
    body = {"path": str(path.expanduser().absolute()), "reason": reason}
    version = Proxy(url).post("/burnish/adapters", {key: text for key, text in body.items() if text})
    if printed_json(version, as_json):
        return
    name = version_name(version["version"])
    console.print(f"imported as [bold]{name}[/]; make it live: burnish adapters promote {name}")


@app.command()
def export(
    number: Number,
    path: Annotated[
        Path,
        typer.Argument(help="The file (gguf, merged-gguf) or directory (peft, mlx, merged-hf) to create."),
    ],
    form: Annotated[
        VersionFormat,
        typer.Option(
            "--as",
            help="An adapter: peft (vLLM, SGLang), gguf (llama.cpp) or mlx. A model of its own, base and adapter in "
            "one: merged-gguf (LM Studio, Ollama, llama.cpp) or merged-hf (whatever loads a Hugging Face directory).",
        ),
    ] = VersionFormat.peft,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Write a version to disk in the format of another engine."""
    body = {"path": str(path.expanduser().absolute()), "format": form.value}
    response = Proxy(url, MERGE_LIMIT_S).post(f"/burnish/adapters/{read_number(number)}/export", body)
    if printed_json(response, as_json):
        return
    merged = response.get("merged")
    size = f" ({merged['size_bytes'] / 1e6:,.0f} MB)" if merged else ""
    console.print(f"written: [bold]{escape(response['path'])}[/]{size}")


def read_number(text: str) -> int:
    """Parse a version such as 7, v7 or base. Raises WrongUsage."""
    if text == "base":
        return 0
    digits = text.removeprefix("v")
    if not (digits.isascii() and digits.isdecimal()):
        raise WrongUsage(f'a version is a number such as 7 or v7, or "base", not {text!r}')
    return int(digits)


def _changed(answer: dict[str, Any], as_json: bool) -> None:
    if not printed_json(answer, as_json):
        console.print(f"live now: [bold]{version_name(answer['live'])}[/]")
        if note := answer.get("note"):
            console.print(f"[yellow]{escape(note)}[/]")


def _explain(verdict: dict[str, Any]) -> None:
    console.print(f"\n[{OUTCOMES[verdict['outcome']]}]{escape(verdict['headline'])}[/]")
    for group in verdict["groups"]:
        console.print(f"\n[dim]{escape(group['title'])}[/]")
        for check in verdict["checks"]:
            if check["kind"] == group["kind"]:
                console.print(_hanging(MARKS[check["passed"]], escape(check["text"])))
    for example in verdict.get("examples", ()):
        _side_by_side(example)


def _side_by_side(example: dict[str, Any]) -> None:
    """Print two replies in columns, or one below the other on a narrow terminal."""
    console.print(f"\n[bold]{escape(example['prompt'])}[/]  [dim]{escape(example['why'])}[/]")
    texts = [escape(example[side].strip()) or "[dim](nothing)[/]" for side in SIDES]
    if console.width >= WIDE:
        table = Table(box=None, header_style="dim", pad_edge=False, padding=(0, 2), expand=True)
        for side in SIDES:
            table.add_column(side, ratio=1, overflow="fold")
        table.add_row(*texts)
        console.print(Padding(table, (0, 0, 0, 2)))
    else:
        for side, text in zip(SIDES, texts, strict=True):
            console.print(_hanging(f"[dim]{side:>6}[/]", text))


def _hanging(mark: str, text: str) -> Padding:
    """Indent the lines after the first one."""
    line = Table.grid(padding=(0, 1))
    line.add_row(mark, text)
    return Padding(line, (0, 0, 0, 2))
