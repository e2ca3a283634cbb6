"""How far a model's next-token probabilities are from the run-time adapter's, on the adapter's own replies.

llama.cpp doesn't score a given text, so each token of it costs a request for one more token, which is cheap: the text
before is in its cache.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx

from bench.merges.replies import Reply
from burnish.adapters.hosts.context import PARALLEL

CANDIDATES = 40
"""Most likely tokens for which a model gives probabilities; all others count as one."""

Position = dict[int, float]
"""Token → log-probability, of the most likely tokens."""
Scores = dict[str, list[Position]]
"""Place of a reply → its positions, one a token."""


async def score(http: httpx.AsyncClient, replies: Sequence[Reply]) -> Scores:
    """Ask a model for the probabilities at each token of each reply."""
    found: Scores = {}
    waiting = iter(replies)

    async def slot(number: int) -> None:
        for reply in waiting:
            found[str(reply.place)] = await _positions(http, reply, number)

    await asyncio.gather(*map(slot, range(PARALLEL)))
    return found


def write(path: Path, scores: Scores) -> None:
    path.write_text(json.dumps(scores), encoding="utf-8")


def read(path: Path) -> Scores:
    return {
        place: [{int(token): logprob for token, logprob in each.items()} for each in positions]
        for place, positions in json.loads(path.read_text(encoding="utf-8")).items()
    }


async def _positions(http: httpx.AsyncClient, reply: Reply, slot: int) -> list[Position]:
    messages = [{"role": "user", "content": reply.question}]
    prompt = (await _post(http, "/apply-template", {"messages": messages}))["prompt"]
    before = await _tokens(http, prompt)
    said = await _tokens(http, reply.text)
    positions = []
    for end in range(len(said)):
        answer = await _post(
            http,
            "/completion",
            {
                "prompt": before + said[:end],
                "n_predict": 1,
                "n_probs": CANDIDATES,
                "temperature": 0,
                "id_slot": slot,
            },
        )
        [first] = answer["completion_probabilities"]
        positions.append({each["id"]: each["logprob"] for each in first["top_logprobs"]})
    return positions


async def _tokens(http: httpx.AsyncClient, text: str) -> list[int]:
    return list((await _post(http, "/tokenize", {"content": text, "parse_special": True}))["tokens"])


async def _post(http: httpx.AsyncClient, path: str, body: dict[str, Any]) -> dict[str, Any]:
    response = await http.post(path, json=body)
    return dict(response.raise_for_status().json())


def kl_per_token(right: Scores, other: Scores) -> float:
    """Return the mean KL divergence KL(right ‖ other) over all positions, in nats."""
    pairs = [pair for place, positions in right.items() for pair in zip(positions, other[place], strict=True)]
    return sum(_kl(*pair) for pair in pairs) / len(pairs)


def _kl(right: Position, other: Position) -> float:
    """KL between two positions over the tokens that both name, and all others as one: never more than the true one."""
    both = right.keys() & other.keys()
    terms = [(math.exp(right[token]), math.exp(other[token])) for token in both]
    rest = [max(1e-9, 1 - sum(each)) for each in zip(*terms, strict=True)]
    return math.fsum(p * math.log(p / q) for p, q in [*terms, (rest[0], rest[1])])


def slope(
    adapter: Scores,
    base: Scores,
    variant: Scores,
) -> float:
    """Return the slope of (variant − base) on (adapter − base), in log-probabilities of the likeliest tokens.

    1: the variant has all of the adapter's effect; 0: none of it.
    """
    product = square = 0.0
    for place, positions in adapter.items():
        for learnt, before, after in zip(positions, base[place], variant[place], strict=True):
            for token in learnt.keys() & before.keys() & after.keys():
                wanted = math.exp(learnt[token]) * (learnt[token] - before[token])
                product += wanted * (after[token] - before[token])
                square += wanted * (learnt[token] - before[token])
    return product / square
