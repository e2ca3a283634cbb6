"""Next tokens of a model that is only a hash: for doubles of engines, and for the proofs of versions on them."""

from __future__ import annotations

import hashlib
import random
from pathlib import Path

from burnish.adapters.hosts.api import LIKELIEST
from burnish.adapters.manifest import Probe

TOKENS = 40


def next_tokens(
    prompt: object, adapter: Path | None, *, rounding: float = 0.0, strength: float = 1.0
) -> dict[int, float]:
    """The log-probabilities of the likeliest tokens, the likeliest first.

    ``rounding``: how far a quantised base is from the trainer's, in nats; the same with every adapter.
    """
    base = random.Random(repr(prompt))
    logps = [-1.0 - 4.0 * base.random() for _ in range(TOKENS)]
    logps = [logp + rounding * base.gauss(0, 1) for logp in logps]
    if adapter:
        (file,) = adapter.glob("*.safetensors")
        weights = hashlib.sha256(file.read_bytes()).hexdigest()
        moved = random.Random(weights + repr(prompt))
        logps = [logp + strength * moved.gauss(0, 1) for logp in logps]
    order = sorted(range(TOKENS), key=logps.__getitem__, reverse=True)[:LIKELIEST]
    return {token: logps[token] for token in order}


def text_of(logps: dict[int, float]) -> str:
    return f" {word(next(iter(logps)))}"


def word(token: int) -> str:
    return f"w{token}"


def proof_of(adapter: Path, strength: float = 1.0) -> tuple[Probe, ...]:
    """What a trainer would write of an adapter."""
    prompts = [tuple(range(place, place + 5)) for place in range(8)]
    models = [(next_tokens(list(p), None), next_tokens(list(p), adapter, strength=strength)) for p in prompts]
    return tuple(
        Probe(
            ids=prompt,
            text=" ".join(map(word, prompt)),
            base=tuple((token, word(token), logp) for token, logp in base.items()),
            version=tuple((token, word(token), logp) for token, logp in version.items()),
            base_text=text_of(base),
            version_text=text_of(version),
        )
        for prompt, (base, version) in zip(prompts, models, strict=True)
    )
