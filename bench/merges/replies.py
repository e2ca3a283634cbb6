"""Replies of the models to the same questions with the same seeds, kept in a file as they come."""

from __future__ import annotations

import asyncio
import json
import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import httpx

from bench.merges.models import KEY, QUESTIONS
from burnish.adapters.hosts.context import PARALLEL
from burnish.proxy.cli.demo.user import MAX_TOKENS, SHORT_CHARACTERS, TEMPERATURE, TOP_P, brief

LIMIT_S = 300.0
CONFIDENCE = 1.96
"""Standard errors of a 95 % interval."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply, or its beginning: it is cut as soon as it is too long to please."""

    place: int
    """Its question is ``QUESTIONS[place % len(QUESTIONS)]``, its seed is the place."""
    text: str
    finished: bool

    @property
    def question(self) -> str:
        return QUESTIONS[self.place % len(QUESTIONS)]

    @property
    def pleases(self) -> bool:
        return brief(self.text, self.finished)


def kept(path: Path) -> dict[int, Reply]:
    """Read replies by place; a line that was cut is left out."""
    lines = path.read_text(encoding="utf-8").split("\n")[:-1] if path.exists() else []
    return {reply.place: reply for reply in (Reply(**json.loads(line)) for line in lines)}


async def ask(http: httpx.AsyncClient, path: Path, count: int) -> None:
    """Ask until ``count`` replies are kept."""
    waiting = iter(sorted(set(range(count)) - kept(path).keys()))
    with path.open("a", encoding="utf-8") as file:

        async def one_after_the_other() -> None:
            for place in waiting:
                reply = await _reply(http, place)
                file.write(json.dumps(asdict(reply)) + "\n")
                file.flush()

        async with asyncio.TaskGroup() as tasks:
            for _ in range(PARALLEL):
                tasks.create_task(one_after_the_other())


async def _reply(http: httpx.AsyncClient, place: int) -> Reply:
    body = {
        "messages": [{"role": "user", "content": QUESTIONS[place % len(QUESTIONS)]}],
        "max_tokens": MAX_TOKENS,
        "temperature": TEMPERATURE,
        "top_p": TOP_P,
        "seed": place,
        "stream": True,
    }
    text, finish = "", None
    async with http.stream("POST", "/v1/chat/completions", json=body) as response:
        response.raise_for_status()
        async for line in response.aiter_lines():
            if not line.startswith("data: {"):
                continue
            for choice in json.loads(line[len("data: ") :])["choices"]:
                text += choice["delta"].get("content") or ""
                finish = choice["finish_reason"] or finish
            if len(text.strip()) >= SHORT_CHARACTERS:
                break  # whatever follows, it isn't short
    return Reply(place, text.strip(), finish == "stop")


def client(url: str) -> httpx.AsyncClient:
    return httpx.AsyncClient(
        base_url=url,
        headers={"Authorization": f"Bearer {KEY}"},
        trust_env=False,
        timeout=LIMIT_S,
        limits=httpx.Limits(max_keepalive_connections=0),  # llama.cpp closes them when it likes
    )


@dataclass(frozen=True, slots=True)
class Difference:
    """Share of replies that please, less that of another model, on the same places; a 95 % interval."""

    share: float
    difference: float
    half_width: float
    pairs: int

    @property
    def lower(self) -> float:
        return self.difference - self.half_width


def difference(replies: Mapping[int, Reply], others: Mapping[int, Reply]) -> Difference | None:
    """Compare two models; None if no place has replies of both.

    The standard error is clustered by question, since each is asked several times.
    """
    gains: dict[str, list[int]] = defaultdict(list)
    both = replies.keys() & others.keys()
    for place in both:
        gains[replies[place].question].append(replies[place].pleases - others[place].pleases)
    if not both:
        return None
    mean = sum(map(sum, gains.values())) / len(both)
    squares = sum(sum(gain - mean for gain in each) ** 2 for each in gains.values())
    error = math.sqrt(squares * len(gains) / max(1, len(gains) - 1)) / len(both)
    share = sum(replies[place].pleases for place in both) / len(both)
    return Difference(share, mean, CONFIDENCE * error, len(both))
