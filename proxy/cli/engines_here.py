"""Find engines that already run on this machine, on their default ports."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence

import typer
from rich.markup import escape

from burnish.adapters.errors import EngineError
from burnish.adapters.hosts.api import EngineApi
from burnish.adapters.hosts.detect import NAMES, USUAL_PORTS, Detected, detect
from burnish.proxy.cli.terminal import console


def choose_engine() -> str | None:
    """Ask whether to use an engine that runs here; return its URL, or None for the embedded engine.

    Without a terminal, print the engines and return None.
    """
    for url, found in asyncio.run(engines_here()):
        what = f"{NAMES[found.kind]} with {found.model} answers at {url}"
        if not sys.stdin.isatty():
            console.print(f"[dim]{escape(what)}; to use it: burnish up --upstream {url}[/]")
        elif typer.confirm(f"{what}. Use it?", default=True):
            return url
    return None


async def engines_here(ports: Sequence[int] = USUAL_PORTS) -> list[tuple[str, Detected]]:
    """Ask all ports of 127.0.0.1 at once; return the engines in which burnish can swap versions."""
    urls = [f"http://127.0.0.1:{port}" for port in ports]
    found = await asyncio.gather(*(_look(url) for url in urls))
    return [(url, each) for url, each in zip(urls, found, strict=True) if each and each.kind != "other"]


async def _look(url: str) -> Detected | None:
    api = EngineApi(url)
    try:
        return await detect(api)
    except EngineError:
        return None
    finally:
        await api.close()
