"""Proves that an engine applies a version: it must move the engine's answers as it moved the trainer's.

Engines take an adapter, list it, and answer with the base model. So both are asked what comes next after a few
contexts, and the *shift* from base to version is compared with the one in the manifest. The values themselves aren't:
a quantised base differs from the trainer's by more than a careful adapter, and a merged model by its rounding.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from http import HTTPStatus
from itertools import accumulate
from math import exp, sqrt
from operator import and_, eq
from statistics import fmean
from typing import Literal, NamedTuple

from burnish.adapters.errors import (
    EngineError,
    EngineRefused,
    EngineUnreachable,
    NotApplied,
    ProbeFailed,
    Unproved,
)
from burnish.adapters.hosts.base import AdapterHost, Continuation, Endpoint
from burnish.adapters.manifest import AdapterVersion, Likely, Probe

Grade = Literal["proven", "weakly proven"]
"""Weakly: nobody knows how the trainer's answers moved, so any difference from the base model had to do."""

# `python -m bench.deaf` measures both: a true load moves the answers by about 1, a deaf one by about 0.
PROVEN = 0.5
REFUTED = 0.25
# An engine that answers many requests together rounds otherwise each time.
LOOKS = 2
# Log-probabilities show the version in one token; without them, texts have to differ.
TEXT_TOKENS = 8
# Nats; below that it may be rounding.
DIFFERENCE = 1e-3
# A busy engine is asked again.
PATIENCE = 3
PAUSE_S = 1.0
_BUSY = (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)


class Pair(NamedTuple):
    """What an engine says after the same context."""

    base: Continuation
    version: Continuation


NEUTRAL = tuple(
    Probe(ids=(), text=text, base=(), version=(), base_text="", version_text="")
    for text in (
        *("The capital of France is", "To cook rice, first", "Once upon a time there was a", "Dear Sir or Madam,"),
        *("The best way to learn is", "def add(a, b):", "In short, the answer is", "Here is what I think:"),
    )
)  # fmt: skip
"""Contexts for a version without a proof."""


async def generates(host: AdapterHost, endpoint: Endpoint) -> None:
    """Generate a token for real, on each replica. Raises ProbeFailed."""
    for part in _replicas(endpoint):
        await _asked(host, part, NEUTRAL[0], 1)


async def prove(host: AdapterHost, version: AdapterVersion, endpoint: Endpoint) -> Grade:
    """Prove that the engine, or each replica, applies a version.

    Raises NotApplied (it clearly doesn't), Unproved (it can't be told), ProbeFailed (it doesn't answer).
    """
    for part in _replicas(endpoint):
        await _prove(host, version, part)
    return "proven" if version.manifest.proof else "weakly proven"


def agreement(probes: Sequence[Probe], pairs: Sequence[Pair]) -> float:
    """Return how much of the trainer's shift the engine shows: 1 all of it, 0 none.

    <s, t> / |t| max(|s|, |t|) over the likeliest tokens of all contexts, with the engine's shift s and the trainer's t,
    weighted by probability: the rounding of a merged model is long, but points elsewhere. Without log-probabilities,
    how many more texts are nearer to the version's than to the base's.
    """
    product = square = square_shown = 0.0
    for probe, pair in zip(probes, pairs, strict=True):
        if not all(continuation.likeliest for continuation in pair):
            return _nearer(probes, pairs)
        names = pair.base.likeliest.keys() | pair.version.likeliest.keys()
        count = max(len(continuation.likeliest) for continuation in pair)
        base, version = (_named(tokens[:count], names) for tokens in (probe.base, probe.version))
        for name in (base.keys() | version.keys()) & names:
            shift = _shift(base, version, name)
            weight = max(exp(tokens[name]) for tokens in (base, version) if name in tokens)
            shown = _shift(pair.base.likeliest, pair.version.likeliest, name)
            product += weight * shift * shown
            square += weight * shift**2
            square_shown += weight * shown**2
    return product / max(square, sqrt(square * square_shown)) if square else 0.0


def differ(pairs: Sequence[Pair]) -> bool:
    """Tell whether a version answers otherwise than the base, by more than rounding."""
    return any(
        base.text != version.text
        or any(
            abs(_shift(base.likeliest, version.likeliest, name)) > DIFFERENCE
            for name in base.likeliest.keys() | version.likeliest.keys()
        )
        for base, version in pairs
    )


async def _prove(host: AdapterHost, version: AdapterVersion, endpoint: Endpoint) -> None:
    probes, moved = version.manifest.proof or NEUTRAL, 0.0
    for _ in range(LOOKS):
        base = await host.base(endpoint)
        # All of one and then all of the other, because MLX loads the model again for each change.
        first = await _asked(host, base, probes[0], 1)
        tokens = 1 if first.likeliest else TEXT_TOKENS
        answers = [
            [await _asked(host, model, probe, tokens) for probe in probes] for model in (base, endpoint)
        ]
        pairs = [Pair(*pair) for pair in zip(*answers, strict=True)]
        moved = agreement(probes, pairs) if version.manifest.proof else float(differ(pairs))
        if moved >= PROVEN:
            return
    where = f"{host.engine} at {endpoint.url}"
    if moved < REFUTED:
        raise NotApplied(
            f"{where} took {version.served_name} and ignores it, unless the version itself changes nothing: its "
            f"answers to {len(probes)} prompts are those of the base model. {host.remedy}"
        )
    raise Unproved(
        f"{where} can't be shown to apply {version.served_name}: its answers to {len(probes)} prompts move by "
        f"{moved:.0%} of what training moved. {host.remedy}"
    )


async def _asked(host: AdapterHost, endpoint: Endpoint, probe: Probe, tokens: int) -> Continuation:
    for attempt in range(1, PATIENCE + 1):
        try:
            return await host.continuation(endpoint, probe, tokens)
        except EngineError as error:
            busy = isinstance(error, EngineUnreachable) or (
                isinstance(error, EngineRefused) and error.status in _BUSY
            )
            if not busy or attempt == PATIENCE:
                raise ProbeFailed(
                    f"{endpoint.model} was loaded, but a test generation failed: {error}"
                ) from error
            await asyncio.sleep(PAUSE_S)
    raise AssertionError("unreachable")


def _replicas(endpoint: Endpoint) -> list[Endpoint]:
    return [replace(endpoint, url=url, also=(), lacking=()) for url in endpoint.urls]


def _named(tokens: Sequence[Likely], names: Collection[int | str]) -> dict[int | str, float]:
    """Name tokens as the engine does: by id, or by text."""
    return {identifier if identifier in names else text: logp for identifier, text, logp in tokens}


def _shift(base: Mapping[int | str, float], version: Mapping[int | str, float], token: int | str) -> float:
    """Return by how many nats a token became likelier; one that isn't listed is as likely as the last that is."""
    return version.get(token, min(version.values())) - base.get(token, min(base.values()))


def _nearer(probes: Sequence[Probe], pairs: Sequence[Pair]) -> float:
    """Return how many more texts speak for the version than against it, of those that tell; 1: all.

    Different texts alone don't refute it: on a base rounded otherwise, a greedy text branches off at a near tie.
    """
    votes = [vote for probe, pair in zip(probes, pairs, strict=True) if (vote := _vote(probe, pair))]
    if all(base.text == version.text for base, version in pairs):
        return 0.0
    return max(REFUTED, fmean(votes)) if votes else REFUTED


def _vote(probe: Probe, pair: Pair) -> int:
    """Return 1 if a text begins like the version's rather than the base's, −1 if the reverse; 0: it doesn't tell.

    If it is as like the one as the other, it speaks for the version when the engine's base is less like the version's.
    """
    base, version = pair.base.text, pair.version.text
    if base == version:
        return 0
    likeness = _common(version, probe.version_text)
    nearer = likeness - _common(version, probe.base_text) or max(
        0, likeness - _common(base, probe.version_text)
    )
    return (nearer > 0) - (nearer < 0)


def _common(first: str, second: str) -> int:
    """Return the length of the common beginning."""
    return sum(accumulate(map(eq, first, second), and_))
