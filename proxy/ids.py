"""Ids that sort by time: a prefix and 26 Crockford base-32 characters, 48 bits of milliseconds and 80 random bits."""

from __future__ import annotations

import secrets
import threading
import time

ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
"""Crockford's: no I, L, O, U, so that ids survive being read aloud."""

LENGTH = 26
RANDOM_BITS = 80

_PAIRS = [a + b for a in ALPHABET for b in ALPHABET]

_lock = threading.Lock()
_latest = 0


def completion_id() -> str:
    """Return a new id of a completion."""
    return _new("cmpl_")


def passthrough_id() -> str:
    """Return a new id of a request that is merely passed through."""
    return _new("pass_")


def feedback_id() -> str:
    """Return a new id of a piece of feedback."""
    return _new("fb_")


def run_id() -> str:
    """Return a new id of a training run."""
    return _new("run_")


def conversation_id(first_completion: str) -> str:
    """Return the id of a conversation, which is that of its first completion but for the prefix."""
    return "conv_" + first_completion.removeprefix("cmpl_")


def continue_after(identifier: str) -> None:
    """Make all new ids sort after one of an earlier process: the clock may have been set back since then."""
    global _latest  # noqa: PLW0603 – as in _next
    number = 0
    for each in identifier.rpartition("_")[2][:LENGTH]:
        number = number << 5 | max(ALPHABET.find(each), 0)
    with _lock:
        _latest = max(_latest, number)


def _new(prefix: str) -> str:
    return prefix + _encode(_next())


def _next() -> int:
    """Return a number above all earlier ones of this process, also when the clock stands or steps back."""
    global _latest  # noqa: PLW0603 – the order of ids is a property of the process
    candidate = (time.time_ns() // 1_000_000) << RANDOM_BITS | secrets.randbits(RANDOM_BITS)
    with _lock:
        _latest = max(candidate, _latest + 1)
        return _latest


def _encode(number: int) -> str:
    return "".join([_PAIRS[number >> shift & 1023] for shift in range(5 * (LENGTH - 2), -1, -10)])
