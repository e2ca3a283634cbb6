"""The heads of long prompts: what of them is computed without a gradient, once for all that share it.

An agent sends thousands of tokens of rules and tools before each question. Knows no framework.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from os.path import commonprefix
from typing import Any, NamedTuple

# A head has so many tokens at least. It is cut in steps, so that prompts that begin alike have the same one, and it
# never has the last tokens of a prompt.
LEAST_HEAD, HEAD_STEP, LEARNT_THROUGH = 256, 32, 32
# A token of a head counts so much of one that is learnt through, for memory. It takes a tenth; but to compute layers
# again behind 4,000 tokens would take two fifths more time.
HEAD_SHARE = 1 / 32

Ids = tuple[int, ...]
HeadOf = Callable[[Sequence[Ids]], Ids]
Pairs = Sequence[tuple[Any, Any]]
"""Keys and values of each layer, (1, heads, tokens, width)."""


def head_of(prompts: Sequence[Ids]) -> Ids:
    """Return the head of prompts: tokens that all of them begin with. Short ones have none."""
    shared = tuple(commonprefix(prompts))  # noqa: RUF071, tokens are meant
    length = (len(shared) - LEARNT_THROUGH) // HEAD_STEP * HEAD_STEP
    return shared[:length] if length >= LEAST_HEAD else ()


def no_head(prompts: Sequence[Ids]) -> Ids:
    """Prompts are read whole."""
    return ()


class Woven(NamedTuple):
    """Sequences as a tree, (N,) nodes: what several of them begin with is there once, and computed once."""

    ids: tuple[int, ...]
    parents: tuple[int, ...]
    """The node before each; −1: none. Parents come first."""
    paths: tuple[tuple[int, ...], ...]
    """The nodes of each sequence."""


def woven_tokens(sequences: Sequence[Ids]) -> Woven:
    nodes: dict[tuple[int, int], int] = {}
    paths = []
    for sequence in sequences:
        node, path = -1, []
        for token in sequence:
            node = nodes.setdefault((node, token), len(nodes))
            path.append(node)
        paths.append(tuple(path))
    return Woven(tuple(token for _, token in nodes), tuple(parent for parent, _ in nodes), tuple(paths))


class Heads:
    """The latest head under one policy; the next one is computed from where it differs."""

    def __init__(self, continued: Callable[[Pairs, Ids], Pairs]) -> None:
        """``continued`` computes the pairs of some tokens behind others, and returns all."""
        self._continued = continued
        self._policy: object = None
        self._ids: Ids = ()
        self._pairs: Pairs = ()

    def under(self, policy: object) -> None:
        """From here on, the model acts as this policy."""
        if policy != self._policy:
            self.forget()
        self._policy = policy

    def forget(self) -> None:
        """The weights are others now."""
        self._ids, self._pairs = (), ()

    def pairs(self, ids: Ids) -> Pairs:
        shared = len(commonprefix([self._ids, ids]))  # noqa: RUF071, tokens are meant
        pairs = [(keys[:, :, :shared], values[:, :, :shared]) for keys, values in self._pairs]
        if shared == len(ids):
            return pairs
        self._ids, self._pairs = ids, self._continued(pairs if shared else (), ids[shared:])
        return self._pairs
