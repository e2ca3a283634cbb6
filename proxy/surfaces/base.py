"""Base class of the wire formats: each reads requests, reassembles answers and writes our own."""

from __future__ import annotations

import base64
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, ClassVar

from burnish.proxy.http.errors import BurnishError, InvalidRequest
from burnish.proxy.surfaces.lenient import Json, TooMuch, Undecodable, as_text, decode
from burnish.proxy.surfaces.writing import AnswerWriter, LocalAnswer, local_answer


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """A request as OpenAI chat messages and parameters, the only form that the rest of the proxy knows."""

    messages: list[Json]
    model: str | None = None
    stream: bool = False
    params: Json = field(default_factory=dict)
    """The other members of the body as sent, including ``stream``. Those that training reads are in chat's form:
    ``tools``, ``tool_choice``, ``max_completion_tokens``. ``instructions`` is true if the first message holds for this
    request only."""
    origins: tuple[int | tuple[int, ...], ...] | None = None
    """For each message, the index of the body's item that it was read from, or several indexes; -1: no item.
    None: item n is message n."""
    previous: str | None = None
    """Id of the response that it continues, whose history the upstream holds; ``messages`` are the new ones.
    With ``thread`` in ``params``, the upstream also holds the tools."""
    after_command: bool = False
    """Whether it continues our answer to a ``/rl`` command, which the upstream doesn't know. Then ``previous`` is the
    response before, and ``without`` puts it into the body."""
    remote_context: str | None = None
    """Id of what the upstream adds to ``messages``: a conversation, a stored prompt or a cache."""


@dataclass(frozen=True, slots=True)
class Reply:
    """An upstream's answer, reassembled from its bytes."""

    message: Json | None = None
    """The assistant message of the first choice, if any."""
    finish_reason: str | None = None
    response_id: str | None = None
    usage: Json | None = None
    choices: tuple[Json, ...] = ()
    """All choices ``{"index", "message", "finish_reason", …}``, if they hold more than ``message``."""
    complete: bool = False
    """Whether the answer declares that it is complete."""
    error: str | None = None
    """The upstream's error message, or the reason why its bytes can't be read."""
    items: tuple[str, ...] = ()
    """Ids of the items of a response, by which a client may name them later."""
    readable: bool = True
    """False if the bytes aren't in this format; the log then keeps them as they came."""
    own_end: bool = False
    """Whether the engine says that it met none of the request's stop strings."""


class Surface(ABC):
    """One wire format. Pure: no method does I/O."""

    name: ClassVar[str]
    """As stored in the log, e.g. "chat"."""
    history: ClassVar[str] = ""
    """Member that holds the messages, if a request can hold several turns."""
    key_header: ClassVar[bytes | None] = None
    """Header besides Authorization that upstreams of this format read a key from."""
    fields: ClassVar[tuple[str, ...]] = ()
    """Members of which each request has one. Under a prefix, a body without them is another API's."""

    @abstractmethod
    def read(self, body: Json) -> ChatRequest:
        """Read a request's body. Raises InvalidRequest that names the field.

        Only members that burnish needs are checked.
        """

    def without(self, body: Json, request: ChatRequest, cut: Set[int]) -> Json:
        """Return the body without some messages (by index), which continues ``request.previous``.

        A body without a history stays unchanged.
        """
        return body

    def with_system(self, body: Json, text: str) -> Json | None:
        """Append a text to the system prompt; None if the body has no place for one."""
        return None

    def reassemble(self, chunks: Sequence[bytes], content_type: str, content_encoding: str) -> Reply:
        """Reassemble an answer from the bytes of its body. Never raises: the reply holds the error."""
        try:
            return self._reply(decode(b"".join(chunks), content_encoding), content_type)
        except (Undecodable, TooMuch) as error:
            return Reply(error=str(error), readable=False)
        except RecursionError:
            return Reply(error="JSON nested too deeply", readable=False)

    @abstractmethod
    def _reply(self, body: bytes, content_type: str) -> Reply:
        """Read an answer, streamed or not, from its decoded body."""

    @abstractmethod
    def answer(self, text: str, request: ChatRequest, completion_id: str, model: str) -> LocalAnswer:
        """Return an answer with this text, streamed if the request asks for it."""

    def error(self, error: BurnishError) -> Json:
        return error.envelope()

    def path_naming(self, path: str, model: str) -> str | None:
        """Return the path with another model; None if the body names the model."""
        return None


class Translatable(Surface):
    """A format that can be translated into chat, for an upstream that knows no other."""

    whole_type: ClassVar[str] = "application/json"
    """Content type of an answer that isn't streamed."""

    @abstractmethod
    def as_chat(self, body: Json, request: ChatRequest) -> Json:
        """Return the same request to chat. Raises InvalidRequest if chat can't express it."""

    def idle(self, body: Json, request: ChatRequest) -> Json | None:
        """Answer a request without a question, if the format has any."""
        return None

    @abstractmethod
    def writer(self, body: Json, completion_id: str, model: str) -> AnswerWriter:
        """Return what writes the answer to a request."""

    def answer(self, text: str, request: ChatRequest, completion_id: str, model: str) -> LocalAnswer:
        writer = self.writer({}, completion_id, model)
        return local_answer(writer, text, stream=request.stream, content_type=self.whole_type)

    @abstractmethod
    def error_of(self, status: int, words: str) -> Json:
        """Return an error of the upstream's."""

    def error(self, error: BurnishError) -> Json:
        return self.error_of(error.status, error.message)


def unread(body: bytes) -> Reply:
    """Return the reply for a body that isn't an answer of the format."""
    return Reply(error=as_text(body), readable=not body)


def wrong_type(name: str, expected: str, member: Any) -> InvalidRequest:
    kind = "nothing" if member is None else type(member).__name__
    return InvalidRequest(f"{name} must be {expected}, not {kind}", param=name)


def nothing_asked(surface: Surface) -> InvalidRequest:
    name = surface.fields[0]
    return InvalidRequest(f"{name} is empty: send something to answer", param=name)


def objects_at(body: Json, name: str, expected: str, entry: str) -> list[Json]:
    """Return a member that must be a list of objects. Raises InvalidRequest."""
    content = body.get(name)
    if not isinstance(content, list):
        raise wrong_type(name, expected, content)
    for index, member in enumerate(content):
        if not isinstance(member, dict):
            raise wrong_type(f"{name}[{index}]", entry, member)
    return content


def check_role(message: Json, name: str) -> None:
    """Raises InvalidRequest."""
    if not isinstance(message.get("role"), str):
        wrong = f"{name}.role"
        raise InvalidRequest(f'{wrong} must be a string such as "user" or "assistant"', param=wrong)


def with_text(content: Any, text: str) -> Any:
    """Append a text to the content of a system prompt; None if that is neither text nor parts."""
    if isinstance(content, str):
        return f"{content}\n\n{text}" if content else text
    return [*content, {"type": "text", "text": text}] if isinstance(content, list) else None


def without_items(items: Sequence[Any], request: ChatRequest, cut: Set[int]) -> list[Any]:
    """Return the items of a body without those whose messages are all cut."""
    origins = [
        origin if isinstance(origin, tuple) else (origin,) for origin in request.origins or range(len(items))
    ]
    survivors = {position for index, origin in enumerate(origins) if index not in cut for position in origin}
    cut_positions = {position for index in cut for position in origins[index]} - survivors
    return [item for index, item in enumerate(items) if index not in cut_positions]


def model_of(body: Json) -> str | None:
    """Return the requested model. Raises InvalidRequest."""
    model = body.get("model")
    if model is not None and not isinstance(model, str):
        raise wrong_type("model", "a string", model)
    return model


def wants_stream(body: Mapping[str, Any]) -> bool:
    """Return whether a stream is requested; many servers also take 1 and "true"."""
    return str(body.get("stream")).lower() in ("true", "1", "yes", "on")


def with_suffix(prompt: Any, body: Json) -> Any:
    """Return the content of a prompt. With a suffix it is a gap to fill, not a user's turn, and can't be a command."""
    if not body.get("suffix"):
        return prompt
    parts = prompt if isinstance(prompt, list) else [{"type": "text", "text": prompt}]
    return [*parts, {"type": "suffix", "suffix": body["suffix"]}]


def our_id(prefix: str, completion_id: str, previous: str | None) -> str:
    """Return the id of our answer to a command, which holds the id of the response before it, if there is one."""
    token = base64.urlsafe_b64encode((previous or "").encode()).decode().rstrip("=")
    return f"{prefix}{completion_id.removeprefix('cmpl_')}_{token}"


def before_ours(prefix: str, name: str) -> str | None:
    """Return the id of the response before our answer; None if there is none."""
    token = name.removeprefix(prefix).partition("_")[2]
    try:
        return base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode() or None
    except ValueError:
        return None


def inherited(params: Json, history_params: Json) -> Json:
    """Return the parameters of a request with those that the upstream holds since the requests before it."""
    tools = {"tools": history_params["tools"]} if "thread" in params and "tools" in history_params else {}
    return tools | params
