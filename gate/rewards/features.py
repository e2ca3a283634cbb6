"""Three ways to look at a reply as numbers: its form (length, layout, address), its words, and means of embeddings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import log1p
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from burnish.gate.replies import on_topic, topics

Vector = NDArray[np.float64]
View = Literal["form", "words"]

MIN_REPLIES = 2
"""Words of fewer replies say nothing about another reply."""

SAME = 1e-9

LONGEST_PIECE = 16
"""Characters. Longer ones are rare, and are cut."""
MOST_CHARACTERS = 20_000
"""Of a text; what follows says little more of its mean."""

_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)?")
_SENTENCE = re.compile(r"[.!?…。！？]+(?:\s|$)")
_LIST_ITEM = re.compile(r"^\s*(?:[-*•]|\d+[.)])\s", re.MULTILINE)
_MARK = re.compile(r"[,;:?!、，；：？！]")
# These scripts put no spaces between words, so each pair of characters stands for a word.
_UNSPACED = re.compile(r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\u0e00-\u0e7f]{2,}")
_YOU = frozenset({"you", "your", "yours", "yourself", "you're", "you'll", "you've", "you'd"})
_I = frozenset({"i", "i'm", "i'd", "i'll", "i've", "me", "my", "we", "us", "our"})


class PlainReply(NamedTuple):
    """A reply as the views see it: its text and its question."""

    question: str
    """Text of the last user message."""
    text: str
    finished: bool


@dataclass(frozen=True, slots=True)
class Form:
    """Features of length, layout and address, standardised over the replies at hand."""

    mean: Vector
    scale: Vector

    @classmethod
    def of(cls, replies: Sequence[PlainReply]) -> Form:
        table = np.stack([form(reply) for reply in replies])
        spread = table.std(axis=0)
        # A constant feature may have a spread by rounding, which would blow it up.
        return cls(table.mean(axis=0), np.where(spread > SAME, spread, 1.0))

    def table(self, replies: Sequence[PlainReply]) -> Vector:
        """Return (N, F)."""
        return (np.stack([form(reply) for reply in replies]) - self.mean) / self.scale


@dataclass(frozen=True, slots=True)
class Words:
    """Which words, marks and opening words a reply has, 0 or 1 each."""

    vocabulary: tuple[str, ...]

    @classmethod
    def of(cls, replies: Sequence[PlainReply]) -> Words:
        """Take the words that occur in at least ``MIN_REPLIES`` replies."""
        counts: dict[str, int] = {}
        for reply in replies:
            for word in words(reply.text):
                counts[word] = counts.get(word, 0) + 1
        return cls(tuple(sorted(word for word, count in counts.items() if count >= MIN_REPLIES)))

    def table(self, replies: Sequence[PlainReply]) -> Vector:
        """Return (N, V)."""
        places = {word: place for place, word in enumerate(self.vocabulary)}
        table = np.zeros((len(replies), len(places)))
        for row, reply in zip(table, replies, strict=True):
            row[[places[word] for word in words(reply.text) if word in places]] = 1.0
        return table


def form(reply: PlainReply) -> Vector:
    """Return the features of a reply's form, (F,)."""
    text = reply.text
    tokens = [word.lower() for word in _WORD.findall(text)]
    sentences = max(1, len(_SENTENCE.findall(text)))
    count = max(1, len(tokens))
    return np.array(
        [
            log1p(len(text)),
            log1p(sentences),
            log1p(len(tokens) / sentences),
            sum(map(len, tokens)) / count,
            len(_LIST_ITEM.findall(text)) > 0,
            log1p(text.strip().count("\n")),
            "?" in text,
            "!" in text,
            any(character.isdigit() for character in text),
            sum(word in _YOU for word in tokens) / count,
            sum(word in _I for word in tokens) / count,
            on_topic(text, topics(reply.question)),
            reply.finished,
        ],
        dtype=np.float64,
    )


def words(text: str) -> set[str]:
    """Return the words and marks of a text, and how it opens: its first word and its first two."""
    lowered = text.lower()
    tokens = _WORD.findall(lowered)
    pairs = (run[place : place + 2] for run in _UNSPACED.findall(lowered) for place in range(len(run) - 1))
    return {*tokens, *pairs, *_MARK.findall(lowered), *_openings(tokens)}


def _openings(tokens: Sequence[str]) -> Iterable[str]:
    return (" ".join(("^", *tokens[:count])) for count in (1, 2) if len(tokens) >= count)


VIEWS: dict[View, type[Form | Words]] = {"form": Form, "words": Words}


@dataclass(frozen=True)
class Embedding:
    """The base model's vocabulary and, for each piece, a few directions of its input embedding; numpy, no model.

    Texts are cut into the longest pieces that the vocabulary has. That isn't exactly what the tokenizer does, but
    learning and scoring cut alike.
    """

    vocabulary: tuple[str, ...]
    directions: NDArray[np.float32]
    """(V, D)."""
    _places: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_places", {piece: place for place, piece in enumerate(self.vocabulary)})

    @property
    def width(self) -> int:
        return int(self.directions.shape[1])

    def table(self, replies: Sequence[PlainReply]) -> Vector:
        """Return mean question ⊕ mean reply, (N, 2 D)."""
        table = np.zeros((len(replies), 2 * self.width))
        for row, reply in zip(table, replies, strict=True):
            row[: self.width], row[self.width :] = self._mean(reply.question), self._mean(reply.text)
        return table

    def _mean(self, text: str) -> Vector:
        places = list(self._cut(text[:MOST_CHARACTERS]))
        return self.directions[places].mean(axis=0, dtype=np.float64) if places else np.zeros(self.width)

    def _cut(self, text: str) -> Iterator[int]:
        """Yield the places of a text's pieces; characters that no piece has are passed over."""
        at, places = 0, self._places
        while at < len(text):
            for size in range(min(LONGEST_PIECE, len(text) - at), 0, -1):
                if (place := places.get(text[at : at + size])) is not None:
                    yield place
                    at += size
                    break
            else:
                at += 1
