"""``burnish rollouts``."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import urlencode

import typer
from rich.markup import escape
from rich.table import Table

from burnish.terminal.client import Proxy
from burnish.terminal.terminal import Json, Url, console, printed_json, version_name

STATUSES = {"open": "[yellow]open[/]", "ended": "ended", "timed_out": "[red]timed out[/]"}


def rollouts(
    task: Annotated[str | None, typer.Option(help="Only those of this task.")] = None,
    group: Annotated[str | None, typer.Option(help="Only those of this group.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=1000, help="How many.")] = 20,
    url: Url = None,
    as_json: Json = False,
) -> None:
    wanted = {"task": task, "group": group, "limit": limit}
    query = urlencode({name: value for name, value in wanted.items() if value is not None})
    found = Proxy(url).get(f"/v1/rollouts?{query}")
    if printed_json(found, as_json):
        return
    if not found["data"]:
        console.print("no rollout so far: POST /v1/rollouts begins one (docs/agents-that-learn.md)")
        return
    columns = ("rollout", "task", "group", "seed", "version", "status", "steps", "reward", "learnt in")
    table = Table(*columns, box=None, header_style="dim", pad_edge=False)
    for each in found["data"]:
        table.add_row(*map(escape, _facts(each)[:4]), *_facts(each)[4:])
    console.print(table)
    if found["has_more"]:
        console.print(f"[dim]the latest {limit}; more with --limit[/]")


def _facts(each: dict[str, Any]) -> list[str]:
    version = "" if each["version"] is None else version_name(each["version"])
    reward = "" if each["reward"] is None else f"{each['reward']:+.3g}"
    held_out = "held out" if each["held_out"] else each["learnt_in"] or ""
    seed = "" if each["seed"] is None else str(each["seed"])
    return [
        *(each["id"], each["task"], each["group"] or "", seed),
        *(version, STATUSES[each["status"]], str(len(each["steps"])), reward, held_out),
    ]
