"""A cache by digest, within bounds."""

from __future__ import annotations

from typing import Generic, TypeVar

Value = TypeVar("Value")


class Recent(Generic[Value]):
    """Keeps the values of at least the latest ``limit`` digests, and of at most twice as many.

    Two generations instead of a list in order of use: a look-up costs one access to a dict, mostly.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._young: dict[bytes, Value] = {}
        self._old: dict[bytes, Value] = {}

    def get(self, digest: bytes) -> Value | None:
        """Return the value; None if it was never put in, or has been dropped."""
        value = self._young.get(digest)
        if value is None and (value := self._old.get(digest)) is not None:
            self.put(digest, value)
        return value

    def put(self, digest: bytes, value: Value) -> None:
        if len(self._young) >= self._limit:
            self._old, self._young = self._young, {}
        self._young[digest] = value

    def clear(self) -> None:
        self._young, self._old = {}, {}
