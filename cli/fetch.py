"""Downloads the model of ``burnish up --model`` before anything starts, and shows how far it is."""

from __future__ import annotations

from urllib.parse import urlsplit

from rich.markup import escape
from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

from burnish.adapters.hosts.hub_cache import cached
from burnish.adapters.hosts.hub_gguf import HubFile, endpoint, fetched
from burnish.adapters.hosts.model_file import hub_model
from burnish.terminal.terminal import console

_MB = 1e6
STEPS = 10
"""So many lines say how far a download is when there is no terminal, e.g. in a service's log."""


def fetch(name: str) -> None:
    """Download a model of the hub unless it is here; leave other names to the engine. Raises EngineError."""
    model = hub_model(name)
    if model is None or cached(model):
        return
    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        display = _Display(bar)
        try:
            path = fetched(model, display.start, display.progress)
        except KeyboardInterrupt:
            console.print("stopped; the next start goes on with what is here")
            raise
    console.print(f"[dim]the model is in {escape(str(path))}[/]", soft_wrap=True)


class _Display:
    """Says how far a download is: on a terminal as a bar, else in lines."""

    def __init__(self, bar: Progress) -> None:
        self._bar = bar
        self._task = bar.add_task("", visible=False)
        self._total = 0
        self._steps = 0

    def start(self, file: HubFile) -> None:
        self._total = file.size
        self._bar.update(self._task, total=file.size, visible=True)
        where = urlsplit(endpoint()).netloc
        console.print(
            escape(f"downloading {file.path} of {file.repo} from {where}, {file.size / _MB:,.0f} MB"),
            soft_wrap=True,
        )

    def progress(self, done_bytes: int) -> None:
        self._bar.update(self._task, completed=done_bytes)
        steps = STEPS * done_bytes // self._total
        if steps > self._steps and not console.is_terminal:
            console.print(f"  {done_bytes / _MB:,.0f} of {self._total / _MB:,.0f} MB")
        self._steps = steps
