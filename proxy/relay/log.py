"""The log, as the relay sees it. Imports nothing of the log itself."""

from __future__ import annotations

from typing import Any, Protocol

from burnish.proxy.records import Completion, Passthrough
from burnish.proxy.surfaces.lenient import Json

Held = tuple[list[dict[str, Any]], dict[str, Any]]
"""The messages up to a response, and the response; and the parameters of its request."""


class Log(Protocol):
    def capture(self, entry: Completion | Passthrough) -> None:
        """Take a record; returns at once."""

    async def rated_in_chat(self, messages: list[Json], caller: str, session: str | None) -> bool:
        """True if the caller rated the last answer of a history by ``/rl``."""

    async def held_up_to(self, name: str, caller: str, session: str | None) -> Held | None:
        """Return what came before, up to a response; None if the caller has no such response."""
