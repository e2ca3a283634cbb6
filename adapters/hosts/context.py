"""The embedded engine's window: the tokens of a request, and the requests at a time, within this machine's memory.

A child takes the KV cache of all its slots when it starts: 16 bits for each key and value of each layer. For the small
model that is 23,040 bytes a token, and the rest of a child was 80 MB, whatever the window. Layers that look back a
limited way take less in llama.cpp; here they count in full.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

from burnish.adapters.catalogue import Model
from burnish.adapters.errors import EngineError
from burnish.adapters.hosts.base import Window

logger = logging.getLogger(__name__)

MAX_RESIDENT = 4
"""Children at once: live, candidate, and two that drain after quick swaps."""
PARALLEL = 4
"""Slots by default: on the few cores of a laptop, more requests at a time would only slow down each."""
LEAST_TOKENS, MOST_TOKENS = 4096, 32_768
"""The default context is within these: enough for chat, and enough for coding agents."""
# All caches together take this share of the free memory by default; training and other programs need the rest.
_SHARE = 1 / 4
# llama.cpp rounds a slot's context up to whole cells of its cache.
_STEP = 256
_CHILD_BYTES = 80 * 1024**2
_VALUE_BYTES = 2
_GB = 1e9


@dataclass(frozen=True, slots=True)
class Needs:
    """The memory that a model needs, from the header of its GGUF."""

    trained: int
    token_bytes: int
    """KV cache of a token in all layers."""
    weights_bytes: int
    """The weights are mapped once for all children."""

    def total(self, context: int, parallel: int, children: int) -> int:
        return self.weights_bytes + children * (_CHILD_BYTES + context * parallel * self.token_bytes)

    def longest(self, parallel: int, children: int, cache_bytes: float) -> int:
        """Return the longest context whose caches take so many bytes, in whole steps; 0 if none does."""
        tokens = int(cache_bytes / (children * parallel * self.token_bytes))
        return min(tokens // _STEP * _STEP, self.trained)


def window(
    model: Path, context: int | None, parallel: int | None, *, children: int, free_bytes: int | None
) -> Window:
    """Return the window of a model; None: the default, by the free memory (None: unknown).

    ``children``: processes at once. Raises EngineError if the file can't be read, if the model wasn't trained for so
    long a context, or if the given values take more than the free memory.
    """
    needs = read_needs(model)
    slots = parallel or PARALLEL
    if context is not None and context > needs.trained:
        raise EngineError(
            f"context = {context} is more than the model was trained for: set it to {needs.trained} at most, or take a "
            "model with a longer context"
        )
    tokens = context or _usual(needs, slots, children, free_bytes)
    total = needs.total(tokens, slots, children)
    if free_bytes is not None and total > free_bytes:
        short = (
            f"context = {tokens} with parallel = {slots} takes up to {total / _GB:.1f} GB for {children} versions at a "
            f"time, and {free_bytes / _GB:.1f} GB are free"
        )
        fits = needs.longest(slots, children, free_bytes - needs.total(0, 0, children))
        remedy = f"set context to {fits} at most" if fits >= LEAST_TOKENS else "set a smaller parallel"
        if context or parallel:
            raise EngineError(f"{short}: {remedy}, or close other programs")
        logger.warning("%s: close other programs, set parallel = 1, or take a smaller model", short)
    return Window(tokens, slots, needs.trained)


def _usual(needs: Needs, slots: int, children: int, free_bytes: int | None) -> int:
    """Return a model's default context."""
    share = needs.longest(slots, children, (free_bytes or 0) * _SHARE)
    return min(max(share, LEAST_TOKENS), MOST_TOKENS, needs.trained)


def memory_of(model: Model, context: int | None, parallel: int | None, free_bytes: int | None) -> int:
    """Return the memory of one child if ``up`` serves a model with this context and these slots."""
    slots = parallel or PARALLEL
    needs = Needs(model.context, model.token_bytes, model.mb * 10**6)
    tokens = context or _usual(needs, slots, MAX_RESIDENT, free_bytes)
    return model.memory_bytes(slots, tokens) + _CHILD_BYTES


def read_needs(model: Path) -> Needs:
    """Read the header of a GGUF. Raises EngineError."""
    # Imported here: numpy takes a while, and commands that serve nothing need none.
    from burnish.adapters.convert.gguf_layout import demanded, field, open_gguf

    try:
        reader = open_gguf(model)
        prefix = demanded(reader, "general.architecture")
        layers = int(demanded(reader, f"{prefix}.block_count"))
        heads = _each(demanded(reader, f"{prefix}.attention.head_count"), layers)
        width = int(demanded(reader, f"{prefix}.embedding_length")) // max(heads)
        lengths = (
            int(field(reader, f"{prefix}.attention.{part}_length", width)) for part in ("key", "value")
        )
        cached = sum(_each(field(reader, f"{prefix}.attention.head_count_kv", heads), layers))
        trained = int(demanded(reader, f"{prefix}.context_length"))
        return Needs(trained, cached * sum(lengths) * _VALUE_BYTES, model.stat().st_size)
    except (OSError, ValueError, TypeError, ZeroDivisionError) as error:
        raise EngineError(f"cannot read the model {model} as GGUF: {error}") from error


def _each(numbers: int | list[int], layers: int) -> list[int]:
    return numbers if isinstance(numbers, list) else [numbers] * layers
