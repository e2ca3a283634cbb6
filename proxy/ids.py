"""IDs that sort by time: a prefix and 26 characters of Crockford base 32 (48 bits of milliseconds, 80 random bits)."""

from __future__ import annotations

import secrets
import threading
import time
from functools import partial
from hashlib import blake2b

ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
"""Without I, L, O and U, which are easily misread."""

LENGTH = 26
RANDOM_BITS = 80

RANDOM_BYTES = RANDOM_BITS // 8
BLOCK_BYTES = 64 * RANDOM_BYTES
"""Random bytes that are taken from the system at once: a call for each ID costs a request some microseconds."""

_PAIRS = [a + b for a in ALPHABET for b in ALPHABET]
_SHIFTS = range(5 * (LENGTH - 2), -1, -10)

_lock = threading.Lock()
_latest = 0
_block = b""
"""Random bytes that no ID has yet."""


def conversation_id(first_completion: str) -> str:
    """Return the ID of its first completion with another prefix."""
    return "conv_" + first_completion.removeprefix("cmpl_")


def first_completion_id_at(moment: float) -> str:
    """Return the lowest ID that a completion of this moment could have; seconds since the epoch."""
    return "cmpl_" + _encode(int(moment * 1000) << RANDOM_BITS)


def made_id(prefix: str, moment: float, content: bytes) -> str:
    """Return the ID of something that came from elsewhere: the same content has the same ID.

    ``moment``: seconds since the epoch; 0 if it isn't known.
    """
    tail = int.from_bytes(blake2b(content, digest_size=RANDOM_BITS // 8).digest())
    return prefix + _encode(int(moment * 1000) << RANDOM_BITS | tail)


def continue_after(identifier: str) -> None:
    """Make new IDs sort after an ID of an earlier process, even if the clock was set back since then."""
    global _latest  # noqa: PLW0603 – as in _next
    number = 0
    for character in identifier.rpartition("_")[2][:LENGTH]:
        number = number << 5 | max(ALPHABET.find(character), 0)
    with _lock:
        _latest = max(_latest, number)


def _new(prefix: str) -> str:
    return prefix + _encode(_next())


def unguessable_id() -> str:
    """Return an ID like that of a completion, of random bits only."""
    return "cmpl_" + _encode(secrets.randbits(5 * LENGTH))


completion_id = partial(_new, "cmpl_")
passthrough_id = partial(_new, "pass_")
feedback_id = partial(_new, "fb_")
run_id = partial(_new, "run_")
duel_id = partial(_new, "duel_")
reward_model_id = partial(_new, "rm_")
rollout_id = partial(_new, "ro_")


def _next() -> int:
    """Return a higher number than before, even if the clock stops or goes back."""
    global _latest, _block  # noqa: PLW0603 – the order of IDs is kept per process
    with _lock:
        _block = _block or secrets.token_bytes(BLOCK_BYTES)
        tail, _block = _block[:RANDOM_BYTES], _block[RANDOM_BYTES:]
        number = (time.time_ns() // 1_000_000) << RANDOM_BITS | int.from_bytes(tail)
        _latest = number if number > _latest else _latest + 1
        return _latest


def _encode(number: int) -> str:
    return "".join([_PAIRS[number >> shift & 1023] for shift in _SHIFTS])
