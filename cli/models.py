"""``burnish models``."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.console import JustifyMethod
from rich.markup import escape
from rich.table import Table

from burnish.adapters.catalogue import Model, models, tasks
from burnish.adapters.hosts.context import LEAST_TOKENS, PARALLEL
from burnish.adapters.hosts.fetch import small_model_path
from burnish.adapters.hosts.hub_cache import HubModel, cached
from burnish.terminal.errors import WrongUsage
from burnish.terminal.terminal import Json, console, printed_json

_GB = 1e9
RESERVED_BYTES = 2 * 10**9
"""Left for the system, burnish and the engine's buffers."""


def show(
    task: Annotated[str | None, typer.Option(help="Only models for this task: chat or code.")] = None,
    as_json: Json = False,
) -> None:
    """Memory is that of the weights and of the cache for the shortest default context. A model that doesn't learn here
    is only served. Other GGUFs of the Hugging Face hub: `burnish up --model OWNER/NAME:QUANTISATION`.
    """
    if task is not None and task not in tasks():
        raise WrongUsage(f"no model is listed for the task {task!r}; expected {' or '.join(tasks())}")
    total = _total_bytes()
    listed = [_described(model, total) for model in models() if task in (None, *model.tasks)]
    if not printed_json(listed, as_json):
        console.print(_table(listed))
        fits = f"fits into this machine's {total / _GB:.0f} GB"
        console.print(
            f"\n[green]✓[/] {fits}   [cyan]↓[/] downloaded   to use one: [cyan]burnish up --model NAME[/]"
        )


def _described(model: Model, total: int) -> dict[str, Any]:
    needed = model.memory_bytes(PARALLEL, LEAST_TOKENS)
    path = small_model_path() if model.package else cached(HubModel(model.repo, model.file))
    facts = asdict(model) | {
        "checked": model.checked.isoformat(),
        "learns": model.learns,
        "memory_bytes": needed,
        "fits": needed + RESERVED_BYTES <= total,
        "path": str(path) if path and path.exists() else None,
    }
    return {name: fact for name, fact in facts.items() if name != "package"}


def _table(models: list[dict[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in ("", "name", "for", "size", "MB", "memory", "context", "licence", "learns", "checked"):
        justify: JustifyMethod = "right" if name in ("size", "MB", "memory", "context") else "left"
        table.add_column(name, justify=justify, no_wrap=name not in ("for", "licence"))
    for model in models:
        marks = ("[green]✓[/]" if model["fits"] else " ") + ("[cyan]↓[/]" if model["path"] else " ")
        table.add_row(
            marks,
            f"[bold]{escape(model['name'])}[/]",
            ", ".join(model["tasks"]),
            model["parameters"],
            str(model["mb"]),
            f"{model['memory_bytes'] / _GB:.1f} GB",
            str(model["context"]),
            escape(model["licence"]),
            "yes" if model["learns"] else "[yellow]no[/]",
            model["checked"],
        )
    return table


def _total_bytes() -> int:
    import psutil  # every command that starts no server does without

    return int(psutil.virtual_memory().total)
