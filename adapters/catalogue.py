"""The known good small models of ``catalogue.toml``: where each is, what it needs, and whether burnish trains it."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from difflib import get_close_matches
from functools import cache
from pathlib import Path

_FILE = Path(__file__).with_suffix(".toml")
# llama.cpp's cache holds keys and values in 16 bits.
_BYTES_A_VALUE = 2
# A local layer also holds the tokens of the batch that is being read.
_BATCH_TOKENS = 512
_NAMES_SUGGESTED = 3


@dataclass(frozen=True, slots=True)
class Model:
    """One entry; ``catalogue.toml`` describes the fields."""

    name: str
    tasks: tuple[str, ...]
    parameters: str
    """In words, e.g. "1.7B", or "30B-A3B": 30B, of which a token passes 3B."""
    licence: str
    repo: str
    """On the Hugging Face hub."""
    file: str
    """The GGUF's name in it."""
    mb: int
    context: int
    """Tokens that it was trained for."""
    architecture: str
    hidden: int
    layers: int
    kv_heads: int
    head_dim: int
    checked: date
    sources: tuple[str, ...]
    window: int = 0
    """Tokens that a local layer looks back; 0: all layers look at everything."""
    full_every: int = 1
    """Every so many layers, one looks at everything."""
    sampling: Mapping[str, float] = field(default_factory=dict)
    """For requests that leave them out: temperature, top_p and top_k with which its authors sample."""
    max_tokens: int | None = None
    """Of an answer in burnish's own chats."""
    package: bool = False
    """It comes from the package index, not from the hub."""

    @property
    def count(self) -> float:
        """Parameters, all of them."""
        number = self.parameters.partition("-")[0]
        return float(number[:-1]) * {"M": 1e6, "B": 1e9}[number[-1]]

    @property
    def learns(self) -> bool:
        """True if burnish can train it behind the embedded engine."""
        # Imported here, because numpy takes a while to load and most commands don't need it.
        from burnish.adapters.convert.gguf_layout import TRAINABLE

        return self.architecture in TRAINABLE

    @property
    def layer_bytes(self) -> int:
        """Cache of a token in one layer."""
        return 2 * self.kv_heads * self.head_dim * _BYTES_A_VALUE

    @property
    def token_bytes(self) -> int:
        """Cache of a token in all layers."""
        return self.layers * self.layer_bytes

    def memory_bytes(self, requests: int, tokens: int) -> int:
        """Return the size of the weights and of the cache for so many requests at once, of so many tokens each."""
        tokens = min(tokens, self.context)
        full = self.layers // self.full_every
        local = min(tokens, self.window + _BATCH_TOKENS) if self.window else tokens
        cached_tokens = full * tokens + (self.layers - full) * local
        return self.mb * 10**6 + requests * cached_tokens * self.layer_bytes


@cache
def models() -> tuple[Model, ...]:
    entries = tomllib.loads(_FILE.read_text(encoding="utf-8"))["model"]
    return tuple(
        Model(**entry | {"tasks": tuple(entry["tasks"]), "sources": tuple(entry["sources"])})
        for entry in entries
    )


def for_context(tokens: int) -> Model | None:
    """Return the smallest model that learns and was trained for so many tokens."""
    able = (model for model in models() if model.context >= tokens and model.learns)
    return min(able, key=lambda model: model.mb, default=None)


def tasks() -> list[str]:
    return sorted({task for model in models() for task in model.tasks})


def find(name: str) -> Model | None:
    """Return the model of this name, in upper or lower case."""
    return next((model for model in models() if model.name == name.lower()), None)


def nearest(name: str) -> list[str]:
    """Return names that are spelt almost like this one, the nearest first."""
    return get_close_matches(name.lower(), [model.name for model in models()], _NAMES_SUGGESTED)
