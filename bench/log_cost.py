"""What does the log cost? CPU time of its writer thread for each completion, group commits and all.

``python -m bench.log_cost [--completions 10000]``: requests of 2 KB, each its own conversation; conversations
that grow to twenty turns; an agent's conversations of a hundred turns, with tools; answers streamed in 64 chunks. They
are put in as a proxy at 5,000 requests a second does, some hundred to a commit; then new ones again as at 20 requests
a second, one to a commit. Exits 1 when a plain completion costs more than the limit.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import re
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from bench.log_growth import TOOLS, exchange, tool
from burnish.proxy.log import Log
from burnish.proxy.records import Completion

LIMIT_US = 60
"""A seventh of what a request costs the proxy altogether."""
TOGETHER = 250
"""Completions to a commit: what comes in 50 ms."""
TURNS, AGENT_TURNS = 20, 100
CHUNKS = 64
DOCS = Path(__file__).parent.parent / "docs"
WORDS = re.findall(r"[A-Za-z]+", "\n".join(page.read_text() for page in sorted(DOCS.glob("*.md"))))
"""Our own documentation: some thousand different words, each as often as people use it."""

SYSTEM = {"role": "system", "content": "You are a helpful assistant."}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--completions", type=int, default=10_000)
    sys.exit(asyncio.run(run(parser.parse_args().completions)))


async def run(completions: int) -> int:
    """Measure each kind in a log of its own; returns the exit code."""
    kinds = {
        "new conversations": (fresh, completions, TOGETHER),
        "growing conversations": (growing, completions, TOGETHER),
        "agents of 100 turns": (agents, completions // 10, TOGETHER),
        "streamed, new": (streamed, completions, TOGETHER),
        "new, one to a commit": (fresh, completions // 10, 1),
    }
    costs = {}
    for name, (kind, count, together) in kinds.items():
        costs[name] = await cost_us(list(kind(count, random.Random(0))), together)
        print(f"{name:<24}{costs[name]:7.1f} µs of the writer's CPU a completion", flush=True)
    return 0 if costs["new conversations"] <= LIMIT_US else 1


async def cost_us(made: list[Completion], together: int) -> float:
    """Log exchanges and return what the writer thread used for each."""
    with tempfile.TemporaryDirectory() as folder:
        log = Log.open(Path(folder) / "log.sqlite3")
        writer = next(each for each in threading.enumerate() if each.name == "burnish-log")
        assert writer.ident
        clock = time.pthread_getcpuclockid(writer.ident)
        await log.runs()
        before = time.clock_gettime(clock)
        for start in range(0, len(made), together):
            for each in made[start : start + together]:
                log.capture(each)
            await log.runs(limit=1)  # waits until they are stored
        spent = time.clock_gettime(clock) - before
        log.close()
    return spent * 1e6 / len(made)


def fresh(count: int, chance: random.Random) -> Iterator[Completion]:
    """Yield requests of 2 KB with an answer of 1 KB, each of its own."""
    for _ in range(count):
        yield made([SYSTEM, {"role": "user", "content": prose(chance, 350)}], reply(chance))


def growing(count: int, chance: random.Random) -> Iterator[Completion]:
    """Yield the turns of some conversations, in turn."""
    conversations: list[list[dict[str, Any]]] = [[SYSTEM] for _ in range(max(count // TURNS, 1))]
    for _ in range(TURNS):
        for history in conversations:
            history.append({"role": "user", "content": prose(chance, 60)})
            answer = reply(chance)
            yield made(history, answer)
            history.append(answer)


def agents(count: int, chance: random.Random) -> Iterator[Completion]:
    """Yield the turns of agents that send their tools and all that was said: 40 KB at first, 130 KB at last."""
    tools = [tool(number, chance) for number in range(TOOLS)]
    for _ in range(max(count // AGENT_TURNS, 1)):
        history: list[dict[str, Any]] = [{"role": "system", "content": prose(chance, 800)}]
        for _ in range(AGENT_TURNS):
            history.append({"role": "user", "content": prose(chance, 60)})
            answer = reply(chance)
            yield made(history, answer, tools=tools)
            history.append(answer)


def streamed(count: int, chance: random.Random) -> Iterator[Completion]:
    """Yield the same as ``fresh`` with answers in pieces."""
    for whole in fresh(count, chance):
        events = [event({"role": "assistant", "content": ""})]
        events += [event({"content": f" {word}"}) for word in prose(chance, CHUNKS - 1).split()]
        events += [event({}, "stop"), b"data: [DONE]\n\n"]
        yield whole._replace(wire=whole.wire._replace(chunks=tuple(events), content_type="text/event-stream"))


def event(delta: dict[str, Any], finish: str | None = None) -> bytes:
    chunk = {
        "id": "chatcmpl-mock-0123456789abcdef",
        "object": "chat.completion.chunk",
        "created": 1_760_000_000,
        "model": "mock",
        "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}],
    }
    return b"data: " + orjson.dumps(chunk) + b"\n\n"


def prose(chance: random.Random, words: int) -> str:
    return " ".join(chance.choices(WORDS, k=words))


def made(messages: list[dict[str, Any]], answer: dict[str, Any], **more: object) -> Completion:
    """Return an exchange as clients make them."""
    body = {"model": "smollm2", "messages": messages, "temperature": 0.7, "max_tokens": 256, "stream": False}
    return exchange(orjson.dumps(body | more), answer)


def reply(chance: random.Random) -> dict[str, Any]:
    return {"role": "assistant", "content": prose(chance, 130)}


if __name__ == "__main__":
    main()
