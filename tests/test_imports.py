"""What importing a room loads, at its top or in a function, is part of its interface."""

from __future__ import annotations

from functools import cache

import grimp
import pytest

MOST = {"burnish.proxy.relay.relay": 95, "burnish.proxy.log.log": 69}
"""Modules of ours, by what is imported."""
HEAVY = {"numpy", "torch", "transformers", "litellm", "typer"}


@cache
def graph() -> grimp.ImportGraph:
    return grimp.build_graph("burnish", include_external_packages=True)


def closure(*modules: str) -> set[str]:
    """Return everything that these modules import, directly or not, and the packages around all of them."""
    names: set[str] = set()
    waiting = list(modules)
    while waiting:
        name = waiting.pop()
        if name in names:
            continue
        names.add(name)
        if name.startswith("burnish"):
            waiting += graph().find_modules_directly_imported_by(name)
            if parent := name.rpartition(".")[0]:
                waiting.append(parent)
    return names


def ours(names: set[str]) -> list[str]:
    return sorted(name for name in names if name.startswith("burnish"))


@pytest.mark.parametrize(("module", "most"), MOST.items())
def test_a_room_loads_few_others(module: str, most: int) -> None:
    names = closure(module)
    assert len(ours(names)) <= most, ours(names)
    assert not HEAVY & names


def test_http_loads_nothing_outside_itself() -> None:
    room = {"burnish.proxy.http", *graph().find_descendants("burnish.proxy.http")}
    names = closure(*room)
    assert set(ours(names)) == room | {"burnish", "burnish.proxy"}
    assert not HEAVY & names
