"""What a surface is: one wire format, read on its way in, reassembled for the log, and spoken when we answer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from burnish.proxy.errors import BurnishError


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """A request in the one form that the rest of the proxy knows: OpenAI chat messages and parameters."""

    messages: list[dict[str, Any]]
    model: str | None = None
    stream: bool = False
    params: dict[str, Any] = field(default_factory=dict)
    """Everything else of the body, as it was sent (``stream`` and ``stream_options`` too); in chat's form what chat has
    in another one, and training reads: ``tools``, ``tool_choice``, ``max_completion_tokens``. ``instructions`` is true
    where the first message holds for this request only, not for those that go on from its answer."""
    origins: tuple[int | tuple[int, ...], ...] | None = None
    """For each message the index of the item of the body that it was read from, or of all of them where several make a
    message; -1 where there is none. None: item n is message n."""
    previous: str | None = None
    """Id of the response whose conversation it goes on from, which the upstream holds: ``messages`` are what is new."""
    after_command: bool = False
    """Whether it goes on from an answer of ours to a command, which the upstream does not know: ``previous`` is the
    response before that, and ``without`` names it in the body."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What an upstream answered, put together again from its bytes."""

    message: dict[str, Any] | None = None
    """The assistant message of the first choice; None when there is none."""
    finish_reason: str | None = None
    response_id: str | None = None
    usage: dict[str, Any] | None = None
    choices: tuple[dict[str, Any], ...] = ()
    """All choices ``{"index", "message", "finish_reason", …}``, when there is more to them than ``message``."""
    ended: bool = False
    """Whether the answer says itself that it is whole."""
    error: str | None = None
    """The upstream's own words for what went wrong, or why its bytes cannot be read."""
    readable: bool = True
    """False when the bytes are not what the surface expects, so that only the raw bytes tell what came."""


class Surface(Protocol):
    """One wire format. Pure: no method does I/O."""

    name: ClassVar[str]
    """Short, as the log stores it, e.g. "chat"."""
    key_header: ClassVar[bytes | None]
    """Where upstreams of this format look for a key, if not only in Authorization."""

    def read(self, body: dict[str, Any]) -> ChatRequest:
        """Understand a request's body. Raises InvalidRequest that names the field."""
        ...

    def without(self, body: dict[str, Any], request: ChatRequest, cut: Set[int]) -> dict[str, Any]:
        """Return the body without some of the request's messages (by index) and everything else as it was.

        It goes on from ``request.previous``, as the upstream knows it.
        """
        ...

    def with_system(self, body: dict[str, Any], text: str) -> dict[str, Any] | None:
        """Return the body with a text at the end of its system prompt; None when it has no place for one."""
        ...

    def reassemble(self, chunks: Sequence[bytes], content_type: str, content_encoding: str) -> Reply:
        """Put an answer together from the bytes of its body. Never raises: what is wrong stands in the reply."""
        ...

    def answer(
        self, text: str, request: ChatRequest, completion_id: str, model: str
    ) -> tuple[str, Iterable[bytes]]:
        """Say a text in this format, streamed if the request asks so: content type and parts of the body."""
        ...

    def error(self, error: BurnishError) -> dict[str, Any]:
        """Return the body that reports an error to clients of this format."""
        ...

    def path_naming(self, path: str, model: str) -> str | None:
        """Return the path that asks for another model; None where the member ``model`` of the body names it."""
        ...


class OpenAI:
    """What the formats of OpenAI have in common, and many others with them."""

    key_header: ClassVar[bytes | None] = None

    def error(self, error: BurnishError) -> dict[str, Any]:
        """Return the body that reports an error to clients of this format."""
        return error.envelope()

    def path_naming(self, path: str, model: str) -> str | None:
        """Return the path that asks for another model; None where the member ``model`` of the body names it."""
        return None


def without_items(items: Sequence[Any], request: ChatRequest, cut: Set[int]) -> list[Any]:
    """Return the items of a body without those of which all messages are to be cut."""
    origins = [each if isinstance(each, tuple) else (each,) for each in request.origins or range(len(items))]
    kept = {item for index, origin in enumerate(origins) if index not in cut for item in origin}
    gone = {item for index in cut for item in origins[index]} - kept
    return [item for index, item in enumerate(items) if index not in gone]
