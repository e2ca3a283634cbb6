"""Stale answers: after a swap, a long prefix that all versions share must not come from another version's cache.

Each version's logprobs after that prefix are taken once from the engine itself, when nothing has been asked of it and
the version is loaded alone under a name and path of its own; and then again through burnish, between the swaps.
"""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path

import aiohttp

from bench.prompts import PROMPTS
from bench.swap_engines import Engine
from burnish.adapters.hosts.base import Endpoint
from tests.support.engine import body, headers
from tests.support.lora import version_of

# More than 500 tokens.
PREFIX = "Read these questions, then answer the last one. " + " ".join(PROMPTS[:90])
TOKENS = 8
# Two versions that differ must lie further apart than this many tolerances, or the check could not fail.
MARGIN = 10

Continuation = list[tuple[str, float]]
"""Tokens, each with its logprob."""


async def continuation(endpoint: Endpoint) -> tuple[Continuation, int]:
    """What a version makes of the prefix, and how many tokens the prefix has."""
    asked = body(PREFIX, TOKENS, model=endpoint.model, logprobs=True, **dict(endpoint.fields))
    url = f"{endpoint.url}/v1/chat/completions"
    async with (
        aiohttp.ClientSession() as session,
        session.post(url, json=asked, headers=headers(endpoint)) as response,
    ):
        response.raise_for_status()
        answer = await response.json()
    steps = answer["choices"][0]["logprobs"]["content"]
    return [(step["token"], step["logprob"]) for step in steps], answer["usage"]["prompt_tokens"]


def apart(one: Continuation, other: Continuation) -> float:
    """How far two continuations lie apart: the largest difference of a logprob (nats); another token counts as 1."""
    furthest = 0.0
    for (token, logprob), (other_token, other_logprob) in zip(one, other, strict=True):
        furthest = max(furthest, abs(logprob - other_logprob))
        if token != other_token:
            return max(furthest, 1.0)
    return furthest


async def fresh(engine: Engine, adapters: dict[int, Path | None], folder: Path) -> dict[int, Continuation]:
    """The truth: what each adapter (None: the bare model) makes of the prefix where nothing was asked before."""
    truth = {}
    for number, adapter in adapters.items():
        version = None
        if adapter:
            copy = shutil.copytree(adapter, folder / f"fresh-{number}")
            version = version_of(copy, 100 + number, engine.host.base_digest, engine.host.base_model)
            engine.known.append(version)
        truth[number], tokens = await continuation(await engine.host.load(version))
        assert tokens >= 500, f"the prefix has only {tokens} tokens"
        await engine.host.unload(version.number if version else 0)
    return truth


def least_apart(truth: dict[int, Continuation]) -> float:
    """How far the two most similar versions lie apart."""
    return min(apart(one, other) for one, other in itertools.combinations(truth.values(), 2))
