"""Stale answers: after a swap, a long prefix that all versions share must not come from another version's cache.

The logprobs of each version after that prefix are taken twice. First from a fresh engine that has loaded only this
version, under a name and path of its own. Then through burnish, between the swaps.
"""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path

import aiohttp

from bench.learning.questions import PROMPTS
from bench.swap_engines import Engine
from burnish.adapters.hosts.base import Endpoint
from tests.support.engine import body, headers
from tests.support.lora import version_of

# As many as every engine gives.
CANDIDATES = 10
# The first of them computes the whole prefix, the others find it in the cache: the same but for rounding.
REPEATS = 3
# Two versions must lie this many tolerances apart, or the check could not fail.
MARGIN = 5

Candidates = dict[str, float]
"""The likeliest first tokens after the prefix → log-probability (nats)."""


async def candidates(endpoint: Endpoint, questions: int) -> Candidates:
    """How a version would go on after a long prefix, that many questions."""
    prefix = "Read these questions, then answer the last one. " + " ".join(PROMPTS[:questions])
    asked = body(
        prefix, 1, model=endpoint.model, logprobs=True, top_logprobs=CANDIDATES, **dict(endpoint.fields)
    )
    url = f"{endpoint.url}/v1/chat/completions"
    async with (
        aiohttp.ClientSession() as session,
        session.post(url, json=asked, headers=headers(endpoint)) as response,
    ):
        response.raise_for_status()
        answer = await response.json()
    assert answer["usage"]["prompt_tokens"] >= 6 * questions
    (step,) = answer["choices"][0]["logprobs"]["content"]
    return {each["token"]: each["logprob"] for each in step["top_logprobs"]}


def apart(one: Candidates, other: Candidates) -> float:
    """Largest difference of a token's log-probability (nats); a lower bound if a token isn't a candidate."""
    return max(
        abs(one.get(token, min(one.values())) - other.get(token, min(other.values())))
        for token in one | other
    )


async def fresh(
    engine: Engine, adapters: dict[int, Path | None], folder: Path, questions: int
) -> dict[int, list[Candidates]]:
    """The truth: what each adapter (None: the base model) makes of the prefix where nothing else was asked before."""
    truth = {}
    for number, adapter in adapters.items():
        version = None
        if adapter:
            copy = shutil.copytree(adapter, folder / f"fresh-{number}")
            version = version_of(copy, 100 + number, engine.host.base_digest, engine.host.base_model)
            engine.known.append(version)
        endpoint = await engine.host.load(version)
        truth[number] = [await candidates(endpoint, questions) for _ in range(REPEATS)]
        await engine.host.unload(version.number if version else 0)
    return truth


def noise(truth: dict[int, list[Candidates]]) -> float:
    return max(apart(one, other) for each in truth.values() for one in each for other in each)


def least_apart(truth: dict[int, list[Candidates]]) -> float:
    """How far the two most similar versions lie apart."""
    firsts = [each[0] for each in truth.values()]
    return min(apart(one, other) for one, other in itertools.combinations(firsts, 2))
