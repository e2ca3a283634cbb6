"""What costs too much to be asked each second."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

Value = TypeVar("Value")

SHARE = 50
"""Asking takes at most so small a part of the time."""
HURRY_S = 5.0
"""Longest pause if somebody waits for another value: a busy machine makes asking slow, too."""


class Seldom(Generic[Value]):
    """Asks for a value, and gives the same one again until asking is due."""

    def __init__(self, ask: Callable[[], Awaitable[Value]]) -> None:
        self._ask = ask
        self._asked_at = self._due_at = 0.0
        """On the monotonic clock."""
        self._value: Value

    async def __call__(self) -> Value:
        began = time.monotonic()
        if began >= self._due_at:
            self._value = await self._ask()
            self._asked_at = time.monotonic()
            self._due_at = self._asked_at + SHARE * (self._asked_at - began)
        return self._value

    def hurry(self) -> None:
        """Somebody waits for another value than the one that was given last."""
        self._due_at = min(self._due_at, self._asked_at + HURRY_S)
