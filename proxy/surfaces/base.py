"""The Surface protocol: one wire format, which reads requests, reassembles answers and writes our own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from burnish.proxy.errors import BurnishError, InvalidRequest
from burnish.proxy.surfaces.lenient import Undecodable, decode


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """A request as OpenAI chat messages and parameters, the only form that the rest of the proxy knows."""

    messages: list[dict[str, Any]]
    model: str | None = None
    stream: bool = False
    params: dict[str, Any] = field(default_factory=dict)
    """The other members of the body as sent, including ``stream``. Those that training reads are in chat's form:
    ``tools``, ``tool_choice``, ``max_completion_tokens``. ``instructions`` is true if the first message holds for this
    request only."""
    origins: tuple[int | tuple[int, ...], ...] | None = None
    """For each message, the index of the body's item that it was read from, or several indexes; -1: no item.
    None: item n is message n."""
    previous: str | None = None
    """Id of the response that it continues, whose history the upstream holds; ``messages`` are the new ones."""
    after_command: bool = False
    """Whether it continues our answer to a ``/rl`` command, which the upstream doesn't know. Then ``previous`` is the
    response before, and ``without`` puts it into the body."""


@dataclass(frozen=True, slots=True)
class Reply:
    """An upstream's answer, reassembled from its bytes."""

    message: dict[str, Any] | None = None
    """The assistant message of the first choice, if any."""
    finish_reason: str | None = None
    response_id: str | None = None
    usage: dict[str, Any] | None = None
    choices: tuple[dict[str, Any], ...] = ()
    """All choices ``{"index", "message", "finish_reason", …}``, if they hold more than ``message``."""
    ended: bool = False
    """Whether the answer declares that it is complete."""
    error: str | None = None
    """The upstream's error message, or the reason why its bytes can't be read."""
    readable: bool = True
    """False if the bytes aren't in this format; the log then keeps them as they came."""


class Surface(Protocol):
    """One wire format. Pure: no method does I/O."""

    name: ClassVar[str]
    """As stored in the log, e.g. "chat"."""
    key_header: ClassVar[bytes | None]
    """Header besides Authorization that upstreams of this format read a key from."""

    def read(self, body: dict[str, Any]) -> ChatRequest:
        """Read a request's body. Raises InvalidRequest that names the field.

        Only members that burnish needs are checked.
        """
        ...

    def without(self, body: dict[str, Any], request: ChatRequest, cut: Set[int]) -> dict[str, Any]:
        """Return the body without some messages (by index), which continues ``request.previous``."""
        ...

    def with_system(self, body: dict[str, Any], text: str) -> dict[str, Any] | None:
        """Append a text to the system prompt; None if the body has no place for one."""
        ...

    def reassemble(self, chunks: Sequence[bytes], content_type: str, content_encoding: str) -> Reply:
        """Reassemble an answer from the bytes of its body. Never raises: the reply holds the error."""
        ...

    def answer(
        self, text: str, request: ChatRequest, completion_id: str, model: str
    ) -> tuple[str, Iterable[bytes]]:
        """Return content type and body parts of an answer with this text, streamed if the request asks for it."""
        ...

    def error(self, error: BurnishError) -> dict[str, Any]:
        """Return an error body for clients of this format."""
        ...

    def path_naming(self, path: str, model: str) -> str | None:
        """Return the path with another model; None if the body names the model."""
        ...


class OpenAI:
    """Errors and paths as OpenAI's formats have them."""

    key_header: ClassVar[bytes | None] = None

    def error(self, error: BurnishError) -> dict[str, Any]:
        return error.envelope()

    def path_naming(self, path: str, model: str) -> str | None:
        return None


def decoded_reply(read: Callable[[bytes], Reply], chunks: Sequence[bytes], content_encoding: str) -> Reply:
    """Decode a body and read a reply from it. Never raises."""
    try:
        return read(decode(b"".join(chunks), content_encoding))
    except Undecodable as error:
        return Reply(error=str(error), readable=False)
    except RecursionError:
        return Reply(error="JSON nested too deeply", readable=False)


def without_items(items: Sequence[Any], request: ChatRequest, cut: Set[int]) -> list[Any]:
    """Return the items of a body without those whose messages are all cut."""
    origins = [each if isinstance(each, tuple) else (each,) for each in request.origins or range(len(items))]
    kept = {item for index, origin in enumerate(origins) if index not in cut for item in origin}
    gone = {item for index in cut for item in origins[index]} - kept
    return [item for index, item in enumerate(items) if index not in gone]


def model_of(body: dict[str, Any]) -> str | None:
    """Return the requested model. Raises InvalidRequest."""
    model = body.get("model")
    if model is not None and not isinstance(model, str):
        raise InvalidRequest(f"model must be a string, not {type(model).__name__}", param="model")
    return model


def wants_stream(body: dict[str, Any]) -> bool:
    """Return whether a stream is requested. Raises InvalidRequest."""
    stream = body.get("stream")
    if stream is not None and not isinstance(stream, bool):
        raise InvalidRequest(f"stream must be true or false, not {type(stream).__name__}", param="stream")
    return bool(stream)


def with_suffix(prompt: Any, body: dict[str, Any]) -> Any:
    """Return the content of a prompt. With a suffix it is a gap to fill, not a user's turn, and can't be a command."""
    if not body.get("suffix"):
        return prompt
    before = prompt if isinstance(prompt, list) else [{"type": "text", "text": prompt}]
    return [*before, {"type": "suffix", "suffix": body["suffix"]}]
