"""A burnish before a scripted upstream, as the page's tests use it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from tests.support.burnish import in_thread, running
from tests.support.inprocess import serving
from tests.support.patience import within
from tests.support.upstream import Received, Script, Upstream, completion, events, reply, stream, upstream


@dataclass
class Site:
    """The running burnish, and what its upstream answers."""

    url: str
    upstream: Upstream
    client: httpx.AsyncClient
    """Asks burnish, with its URL as the base."""
    scripts: dict[str, Script] = field(default_factory=dict)
    """By the text of the last message: how the upstream answers it."""

    async def ask(
        self, prompt: str, answer: str | Script = "Fine.", *, user: str = "anna", **body: Any
    ) -> str:
        """Ask as an agent does, and return the completion's ID. A script may e.g. hold an answer back."""
        streamed = bool(body.get("stream"))
        if isinstance(answer, str):
            answer = stream(events(answer)) if streamed else reply(completion(answer))
        self.scripts[prompt] = answer
        messages = body.pop("messages", [{"role": "user", "content": prompt}])
        asked, headers = {"model": "mock", "messages": messages, **body}, {"x-burnish-user": user}
        response = await self.client.post("/v1/chat/completions", json=asked, headers=headers)
        return response.headers["x-burnish-completion-id"]

    async def answer(self, received: Received, writer: asyncio.StreamWriter) -> None:
        """Answer one request at the upstream."""
        prompt = received.json()["messages"][-1]["content"] if received.body else ""
        await self.scripts.get(prompt, reply(completion()))(received, writer)


@asynccontextmanager
async def site_running(
    folder: Path, *flags: str, env: Mapping[str, str] | None = None
) -> AsyncIterator[Site]:
    """Run a burnish of its own, in a process of its own."""
    async with upstream(reply(completion())) as up:
        program = running(folder, "--upstream", up.url, "--no-train", *flags, env=env)
        async with in_thread(program) as burnish, site_at(burnish.url, up) as site:
            yield site


@asynccontextmanager
async def site_here(folder: Path, *, key: str | None = None, **settings: Any) -> AsyncIterator[Site]:
    """Run a burnish of its own, with these settings, in this process: that takes a tenth of the time.

    ``key``: the one that ``Site.ask`` sends.
    """
    train = {"enabled": False} | settings.pop("train", {})
    async with upstream(reply(completion())) as up:
        flags = {"upstream": up.url, "engine": "auto", "train": train, **settings}
        async with serving(folder, **flags) as (url, _), site_at(url, up, key) as site:
            yield site


@asynccontextmanager
async def site_at(url: str, up: Upstream, key: str | None = None) -> AsyncIterator[Site]:
    headers = {"authorization": f"Bearer {key}"} if key else {}
    # Each request has a connection of its own: burnish may just be closing one that was idle.
    limits = httpx.Limits(max_keepalive_connections=0)
    async with httpx.AsyncClient(base_url=url, headers=headers, timeout=within(30), limits=limits) as client:
        site = Site(url, up, client)
        up.script = site.answer
        yield site
