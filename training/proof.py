"""The figures by which ``burnish.adapters.proof`` knows an engine that applies a version."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import log

from burnish.adapters.manifest import Likely, Probe
from burnish.adapters.proof import TEXT_TOKENS
from burnish.training.backends.base import Distribution, Policy, TrainerBackend
from burnish.training.phases import unwatched
from burnish.training.rendering import Rendered, Renderer

PROBES = 8
# Replies in which the places are searched: some seconds with the small model.
SEARCHED = 32
# Of each reply; a version shows in its first words.
REPLY_TOKENS = 24
# Engines read so much in a moment. Both models get the same end of a conversation, so its beginning may be missing.
CONTEXT_TOKENS = 96
# Engines list ten.
LISTED = 12
# A context is no proof if less of the probability moves there.
LEAST_MOVED = 0.005


def proof_of(backend: TrainerBackend, replies: Sequence[Rendered], policy: Policy) -> tuple[Probe, ...]:
    """Return the contexts in ``replies`` after which a policy differs most from the base model, one a reply."""
    spread = list(dict.fromkeys(_end(reply, backend.renderer) for reply in replies))
    spread = spread[:: -(-len(spread) // SEARCHED)] if spread else []
    models = [backend.distributions(spread, model) for model in ("bare", policy)]
    moves = sorted(
        (
            move
            for reply, *pair in zip(spread, *models, strict=True)
            for move in _most(reply, pair, backend.renderer)
        ),
        key=lambda move: -move[0],
    )[:PROBES]
    contexts = [context for _, context, _ in moves]
    backend.watch = unwatched
    texts = [
        [
            backend.renderer.text(reply.ids)
            for reply in backend.sample(contexts, model, [TEXT_TOKENS] * len(contexts), 0, greedy=True)
        ]
        for model in ("bare", policy)
    ]
    return tuple(
        Probe(
            ids=context,
            text=backend.renderer.written(context) or "",
            base=_listed(base, context, backend.renderer),
            version=_listed(version, context, backend.renderer),
            base_text=base_text,
            version_text=version_text,
        )
        for (_, context, (base, version)), base_text, version_text in zip(moves, *texts, strict=True)
    )


def _end(reply: Rendered, renderer: Renderer) -> Rendered:
    """Return the end of a context, and the beginning of the reply to it."""
    beginning, room = reply.reply[:REPLY_TOKENS], CONTEXT_TOKENS - REPLY_TOKENS
    short = len(reply.prompt) <= room
    return Rendered(reply.prompt if short else (*renderer.begin_ids, *reply.prompt[-room:]), beginning)


_Place = tuple[dict[int, float], dict[int, float]]
"""Probabilities of the likeliest tokens, by the base model and by the version."""


def _most(
    reply: Rendered, models: Sequence[Distribution], renderer: Renderer
) -> Iterator[tuple[float, tuple[int, ...], _Place]]:
    """Yield how much moves, the context and the probabilities there, of the place in a reply where most moves.

    Only a context that engines without ids can be asked for, if there is one.
    """
    places = []
    for place in range(len(reply.reply)):
        base, version = (
            dict(zip(model.ids[place], model.probabilities[place], strict=False)) for model in models
        )
        moved = (
            sum(abs(base.get(token, 0) - version.get(token, 0)) for token in base.keys() | version.keys()) / 2
        )
        places.append((moved, reply.prompt + reply.reply[:place], (base, version)))
    places = sorted((place for place in places if place[0] >= LEAST_MOVED), key=lambda place: -place[0])
    yield from [place for place in places if renderer.written(place[1]) is not None][:1]


def _listed(
    probabilities: dict[int, float], context: Sequence[int], renderer: Renderer
) -> tuple[Likely, ...]:
    order = sorted(probabilities, key=lambda token: -probabilities[token])[:LISTED]
    return tuple(
        (token, renderer.piece(context, token), round(log(max(probabilities[token], 1e-30)), 3))
        for token in order
    )
