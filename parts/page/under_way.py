"""Looks at the answers that are under way, and says what is new: only while somebody watches, and a few times a second.

A relay keeps the bytes of an answer for the log anyway, so watching costs it nothing: each look reads the chunks that
have come since the one before.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from burnish.proxy.messages import text_of, words
from burnish.proxy.relay.flight import CAPTURE_LIMIT_BYTES, Flight
from burnish.proxy.surfaces.arriving import NOTHING, Arriving, Increment

logger = logging.getLogger(__name__)

PROMPT_CHARS = 500
LOOK_BYTES = 1024 * 1024
"""Read in one look, which takes some 10 ms; what is left waits for the next one."""

Json = dict[str, Any]


class News(NamedTuple):
    """What is new since the last look."""

    began: list[Json]
    """Answers that were not under way then."""
    added: dict[str, Increment]
    """By the answer's ID."""
    ended: list[str]


@dataclass(slots=True)
class _AnswerState:
    chunks: int = 0
    """How many were read."""
    arriving: Arriving | None = None


class UnderWay:
    """The answers that burnish is giving."""

    def __init__(self, flights: Callable[[], Iterable[Flight]]) -> None:
        self._flights = flights
        self._seen: dict[str, _AnswerState] = {}

    def look(self) -> News:
        news = News([], {}, [])
        current: dict[str, _AnswerState] = {}
        left = LOOK_BYTES
        for flight in self._flights():
            seen = self._seen.get(flight.id)
            if seen is None:
                seen = _AnswerState()
                news.began.append(_began(flight))
            current[flight.id] = seen
            if left > 0 and len(flight.chunks) > seen.chunks:
                data = _unread(flight, seen, left)
                left -= len(data)
                if (added := _read(flight, seen, data)) != NOTHING:
                    news.added[flight.id] = added
        news.ended.extend(self._seen.keys() - current.keys())
        self._seen = current
        return news

    def forget(self) -> None:
        """Begin anew: at the next look, every answer under way has just begun."""
        self._seen = {}


def _unread(flight: Flight, seen: _AnswerState, most: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    while seen.chunks < len(flight.chunks) and size < most:
        parts.append(flight.chunks[seen.chunks])
        size += len(parts[-1])
        seen.chunks += 1
    return b"".join(parts)


def _read(flight: Flight, seen: _AnswerState, data: bytes) -> Increment:
    if seen.arriving is None:
        seen.arriving = Arriving(flight.asked.surface, flight.content_type, flight.content_encoding)
    # Of a longer answer, the relay keeps the beginning only.
    seen.arriving.over |= flight.captured_bytes > CAPTURE_LIMIT_BYTES
    try:
        return seen.arriving.feed(data)
    except Exception:
        # An answer that breaks the reader must not hide all others.
        logger.exception("the text of %s isn't shown while it arrives", flight.id)
        seen.arriving.over = True
        return NOTHING


def _began(flight: Flight) -> Json:
    asked = flight.asked
    return {
        "id": flight.id,
        "created_at": asked.created_at,
        "caller": asked.caller,
        "agent": asked.agent,
        "session": asked.session,
        "model_asked": asked.model_asked,
        "version": flight.served.adapter_version,
        "prompt": _prompt(flight)[:PROMPT_CHARS],
    }


def _prompt(flight: Flight) -> str:
    """Return what a person asked last; "" if the request was read in the child process."""
    said = next((each for each in reversed(flight.messages) if each.get("role") == "user"), None)
    return (words(said) or text_of(said)) if said else ""
