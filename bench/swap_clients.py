"""Clients that stream through burnish without pause while versions change, and judge every answer.

A parrot version says one word of its own for ever. So an answer that mixes two versions, or that is not what its
version says on a quiet engine, cannot be overlooked.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import aiohttp

from bench.learning.questions import PROMPTS
from burnish.adapters.hosts.base import Endpoint
from tests.support.engine import answer, deltas

TOKENS = 16
ASKED = PROMPTS[:6]
# Longer than two swaps take; whoever holds a version hangs up earlier.
HOLD_TOKENS = 1500
_VERSION = re.compile(r"(?:@|-burnish:)(v\d+).*")


@dataclass
class Tally:
    """The observations of the clients."""

    answers: Counter[int] = field(default_factory=Counter)
    """Whole answers by version."""
    outlived: int = 0
    """Answers during which another version went live."""
    faults: Counter[str] = field(default_factory=Counter)
    """failed, cut, mixed, stale"""
    examples: list[str] = field(default_factory=list)
    swaps: int = 0
    """So far."""

    def fault(self, kind: str, example: object) -> None:
        """Count a fault, and keep what it looked like."""
        self.faults[kind] += 1
        self.examples.append(f"{kind}: {example!r}")


@dataclass(frozen=True, slots=True)
class Clients:
    """Clients of one burnish; ``texts`` has, for each question, the quiet engine's answer → its version."""

    url: str
    base_model: str
    texts: list[dict[str, int]]
    tally: Tally
    ended: Counter[int] = field(default_factory=Counter)
    """Answers of each client, good or not."""

    @asynccontextmanager
    async def streaming(self, clients: int) -> AsyncIterator[None]:
        """Keep that many streams going; at the end, wait for the last of them."""
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            for first in range(clients):
                tasks.create_task(self._stream(first, stop))
            try:
                yield
            finally:
                stop.set()

    async def moved_on(self) -> None:
        """Return when every client has ended the answer that it streams now."""
        before = dict(self.ended)
        while any(self.ended[client] <= count for client, count in before.items()):  # noqa: ASYNC110
            await asyncio.sleep(0.05)

    async def _stream(self, client: int, stop: asyncio.Event) -> None:
        turn = client
        while not stop.is_set():
            turn += 1
            before = self.tally.swaps
            try:
                parts = [
                    (part.model, part.text)
                    async for part in deltas(live(self.url), ASKED[turn % len(ASKED)], TOKENS)
                ]
            except (aiohttp.ClientPayloadError, AssertionError, KeyError) as error:
                # KeyError: an error event in place of a chunk.
                self.tally.fault("cut", error)
            except (aiohttp.ClientError, OSError) as error:
                self.tally.fault("failed", error)
            else:
                self._judge(turn, parts)
                self.tally.outlived += self.tally.swaps != before
            self.ended[client] += 1

    def _judge(self, turn: int, parts: list[tuple[str, str]]) -> None:
        models, text = {model for model, _ in parts}, "".join(text for _, text in parts)
        version = self.texts[turn % len(ASKED)].get(text)
        # Chunks name the version; foreign engines add its content: smollm2@v3-1a2b3c4d, smollm2-burnish:v3-1a2b3c4d.
        named = {_VERSION.sub(r"@\1", model) for model in models}
        # MLX has one name for all of them.
        if version is None or named not in ({f"{self.base_model}@v{version}"}, {self.base_model}):
            self.tally.fault("mixed", f"{models} said {text!r}")
            return
        self.tally.answers[version] += 1


def live(url: str) -> Endpoint:
    return Endpoint(url, "default", 0)


async def said(url: str) -> list[str]:
    return [await answer(live(url), question, TOKENS) for question in ASKED]


@asynccontextmanager
async def held(url: str, base_model: str, version: int) -> AsyncIterator[None]:
    """Keep a version loaded with a stream of its own, whatever is live."""
    name = f"{base_model}@v{version}" if version else f"{base_model}@base"
    stream = deltas(Endpoint(url, name, version), ASKED[0], HOLD_TOKENS)
    await anext(stream)
    try:
        yield
    finally:
        await stream.aclose()
