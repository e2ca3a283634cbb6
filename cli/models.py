"""``burnish models``."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.console import JustifyMethod
from rich.markup import escape
from rich.table import Table

from burnish.adapters.catalogue import Model, models, tasks
from burnish.adapters.hosts.context import memory_of
from burnish.adapters.hosts.fetch import small_model_path
from burnish.adapters.hosts.hub_cache import HubModel, cached
from burnish.system.memory import available_bytes
from burnish.terminal.errors import WrongUsage
from burnish.terminal.terminal import Json, console, printed_json

_GB = 1e9
RESERVED_BYTES = 2 * 10**9
"""Left for the system, burnish and the engine's buffers."""


def show(
    task: Annotated[
        str | None,
        typer.Option(help="Only models for this task: chat, code or text (continues it; no chat)."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Memory is what the engine takes if `burnish up` serves the model now, without --context and --parallel. A
    model that doesn't learn here is only served. --json has what the engine samples with unless a request says
    otherwise, and how an adapter is trained. Other GGUFs of the Hugging Face hub:
    `burnish up --model OWNER/NAME:QUANTISATION`.
    """
    if task is not None and task not in tasks():
        raise WrongUsage(f"no model is listed for the task {task!r}; expected {', '.join(tasks())}")
    total = total_bytes()
    listed = [_described(model, total) for model in models() if task in (None, *model.tasks)]
    if not printed_json(listed, as_json):
        console.print(_table(listed))
        fits = f"fits into this machine's {total / _GB:.0f} GB"
        console.print(
            f"\nfile and memory in GB   [green]✓[/] {fits}   [cyan]↓[/] downloaded\n"
            "to use one: [cyan]burnish up --model NAME[/]"
        )


def _described(model: Model, total: int) -> dict[str, Any]:
    needed = memory_of(model, None, None, available_bytes())
    path = small_model_path() if model.package else cached(HubModel(model.repo, model.file))
    facts = asdict(model) | {
        "checked": model.checked.isoformat(),
        "learns": model.learns,
        "lora": _lora(model) if model.learns else None,
        "memory_bytes": needed,
        "fits": needed + RESERVED_BYTES <= total,
        "path": str(path) if path and path.exists() else None,
    }
    return {name: fact for name, fact in facts.items() if name != "package"}


def _lora(model: Model) -> dict[str, Any]:
    """Return the defaults with which ratings train it."""
    from burnish.training.job import ModelSize  # numpy takes a while to load
    from burnish.training.presets import hyperparameters

    size = ModelSize(hidden=model.hidden, layers=model.layers, parameters=round(model.count))
    return hyperparameters(size=size).model_dump(include={"rank", "alpha", "targets", "learning_rate"})


def _table(models: list[dict[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for name in ("", "name", "for", "size", "file", "memory", "context", "licence", "learns"):
        justify: JustifyMethod = "right" if name in ("size", "file", "memory", "context") else "left"
        table.add_column(name, justify=justify, no_wrap=True)
    for model in models:
        marks = ("[green]✓[/]" if model["fits"] else " ") + ("[cyan]↓[/]" if model["path"] else " ")
        table.add_row(
            marks,
            f"[bold]{escape(model['name'])}[/]",
            " ".join(model["tasks"]),
            model["parameters"],
            f"{model['mb'] / 1000:.1f}",
            f"{model['memory_bytes'] / _GB:.1f}",
            f"{model['context'] // 1024}K",
            escape(model["licence"]),
            "yes" if model["learns"] else "[yellow]no[/]",
        )
    return table


def total_bytes() -> int:
    import psutil  # every command that starts no server does without

    return int(psutil.virtual_memory().total)
