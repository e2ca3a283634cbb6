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
    filters = {"task": task, "group": group, "limit": limit}
    query = urlencode({name: setting for name, setting in filters.items() if setting is not None})
    page = Proxy(url).get(f"/v1/rollouts?{query}")
    if printed_json(page, as_json):
        return
    if not page["data"]:
        console.print("no rollout so far: POST /v1/rollouts begins one (docs/agents-that-learn.md)")
        return
    columns = ("rollout", "task", "group", "seed", "version", "status", "steps", "reward", "learnt in")
    table = Table(*columns, box=None, header_style="dim", pad_edge=False)
    for rollout in page["data"]:
        table.add_row(*map(escape, _facts(rollout)[:4]), *_facts(rollout)[4:])
    console.print(table)
    if page["has_more"]:
        console.print(f"[dim]the latest {limit}; more with --limit[/]")


def _facts(rollout: dict[str, Any]) -> list[str]:
    version = "" if rollout["version"] is None else version_name(rollout["version"])
    reward = "" if rollout["reward"] is None else f"{rollout['reward']:+.3g}"
    held_out = "held out" if rollout["held_out"] else rollout["learnt_in"] or ""
    seed = "" if rollout["seed"] is None else str(rollout["seed"])
    return [
        *(rollout["id"], rollout["task"], rollout["group"] or "", seed),
        *(version, STATUSES[rollout["status"]], str(len(rollout["steps"])), reward, held_out),
    ]
