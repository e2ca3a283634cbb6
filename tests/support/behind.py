"""A scripted upstream behind the whole of burnish, and looks into the log."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.support.inprocess import calling
from tests.support.upstream import Script, Upstream, upstream


@asynccontextmanager
async def behind(
    tmp_path: Path, script: Script, **flags: Any
) -> AsyncIterator[tuple[httpx.AsyncClient, Upstream]]:
    """Run burnish before an upstream; gives a client of burnish, and the upstream."""
    async with upstream(script) as server, calling(tmp_path, **{"upstream": server.url} | flags) as client:
        yield client, server


async def logged(client: httpx.AsyncClient) -> list[dict[str, Any]]:
    """Return the completions, earliest first, with all that is known of them."""
    listed = (await client.get("/burnish/completions")).json()["data"]
    return [(await client.get(f"/burnish/completions/{each['id']}")).json() for each in listed][::-1]


async def ratings(client: httpx.AsyncClient) -> list[dict[str, Any]]:
    """Return all feedback, latest first."""
    return list((await client.get("/v1/feedback")).json()["data"])
