"""The text of an answer while it arrives, in every format: bytes in, pieces of the first choice out.

For people who watch. What the log keeps is read from the whole answer (``Surface.reassemble``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from burnish.proxy.surfaces.chat import as_chat
from burnish.proxy.surfaces.deltas import Calls, Deltas
from burnish.proxy.surfaces.ends import end_in
from burnish.proxy.surfaces.frames import Frames, UnreadableAnswer, frames, unpacking
from burnish.proxy.surfaces.gemini_contents import member, parts_of
from burnish.proxy.surfaces.lenient import Json, TooMuch, objects

TEXT_LIMIT = 200_000
"""Characters of an answer that are read while it arrives. Nobody reads faster."""
TOOLS_LIMIT = 100
TOOL_CHARS = 100

Piece = tuple[str, str]
"""What it is ("text", "thought" or "tool"), and the text or the tool's name."""


class Increment(NamedTuple):
    """What has come since the last look."""

    text: str
    tools: tuple[str, ...] = ()
    """Names of the tools whose calls began."""
    thinks: bool = False
    """Whether the model thought."""


NOTHING = Increment("")


class Arriving:
    """Reads one answer. It gives up on what it can't read."""

    def __init__(self, surface: str, content_type: str, content_encoding: str) -> None:
        self._surface = surface
        self._content_type = content_type
        self._pieces = PIECES[surface]()
        self._frames: Frames | None = None
        self.over = False
        """Whether nothing more can be read."""
        self._left = TEXT_LIMIT
        self._tools_left = TOOLS_LIMIT
        self._half = ""
        """The first half of a surrogate pair, which waits for the second."""
        try:
            self._unpack = unpacking(content_encoding.strip().lower())
        except UnreadableAnswer:
            self.over = True

    def feed(self, chunk: bytes) -> Increment:
        """Add bytes; return what they say."""
        if self.over or not chunk:
            return NOTHING
        texts, tools, thinks = list[str](), list[str](), False
        try:
            for kind, text in self._read(self._unpack(chunk)):
                if kind == "text":
                    texts.append(text)
                elif kind == "tool":
                    tools.append(text[:TOOL_CHARS])
                else:
                    thinks = True
        except (UnreadableAnswer, TooMuch):
            self.over = True
        text = self._half + "".join(texts)
        self._half = text[-1:] if "\ud800" <= text[-1:] <= "\udbff" else ""
        return self._within(_storable(text.removesuffix(self._half)), tools, thinks=thinks)

    def _read(self, chunk: bytes) -> Iterator[Piece]:
        if self._frames is None and chunk:
            self._frames = frames(self._surface, chunk, self._content_type)
            self.over = self._frames is None
        if self._frames:
            for part in self._frames.feed(chunk):
                yield from self._pieces(part)

    def _within(self, text: str, tools: list[str], *, thinks: bool) -> Increment:
        text, tools = text[: self._left], tools[: self._tools_left]
        self._left -= len(text)
        self._tools_left -= len(tools)
        self.over = self.over or not self._left
        return Increment(text, tuple(map(_storable, tools)), thinks)


def _storable(text: str) -> str:
    """Return a text that UTF-8 can hold: halves of a surrogate pair are joined, lone ones replaced."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


class _Chat:
    """Reads the first choice of a stream of chat."""

    def __init__(self, as_chat: Callable[[Json], Json] = lambda choice: choice) -> None:
        """``as_chat``: converts a choice into chat's."""
        self._as_chat = as_chat
        self._deltas, self._calls = Deltas(), Calls()
        self._name_count = 0
        """Calls whose turn has been."""

    def __call__(self, part: Json) -> Iterator[Piece]:
        for choice in objects(part.get("choices")):
            if not choice.get("index"):
                delta = self._deltas.take(self._as_chat(choice))
                yield from _message(delta)
                self._calls.take(objects(delta.get("tool_calls")))
                yield from self._names(last=end_in(choice).reason is not None)

    def _names(self, *, last: bool) -> Iterator[Piece]:
        """Yield each name that is whole, because more than the name came; ``last``: nothing more comes."""
        calls = self._calls.all
        while self._name_count < len(calls):
            call = calls[self._name_count]
            if not (last or call.begun or self._name_count < len(calls) - 1):
                return
            self._name_count += 1
            if call.name:
                yield "tool", call.name


def _message(message: Json) -> Iterator[Piece]:
    """Read a delta of chat, or a message of Ollama's, without calls."""
    for text in (message.get("content"), message.get("refusal")):
        if isinstance(text, str):
            yield "text", text
    if any(message.get(name) for name in ("reasoning_content", "reasoning", "thinking")):
        yield "thought", ""


def _named(holder: Any) -> Iterator[Piece]:
    if isinstance(holder, dict) and isinstance(name := holder.get("name"), str) and name:
        yield "tool", name


def _messages(part: Json) -> Iterator[Piece]:
    if part.get("type") == "content_block_delta" and isinstance(delta := part.get("delta"), dict):
        if isinstance(text := delta.get("text"), str):
            yield "text", text
        elif "thinking" in delta:
            yield "thought", ""
    elif part.get("type") == "content_block_start" and isinstance(block := part.get("content_block"), dict):
        if isinstance(text := block.get("text"), str):
            yield "text", text
        if block.get("type") == "tool_use":
            yield from _named(block)


RESPONSES_TEXTS = ("response.output_text.delta", "response.refusal.delta")


def _responses(part: Json) -> Iterator[Piece]:
    kind, delta = part.get("type"), part.get("delta")
    if kind in RESPONSES_TEXTS and isinstance(delta, str):
        yield "text", delta
    elif isinstance(kind, str) and kind.startswith("response.reasoning"):
        yield "thought", ""
    elif kind == "response.output_item.added":
        yield from _named(part.get("item"))


def _ollama(part: Json) -> Iterator[Piece]:
    message = part.get("message")
    message = message if isinstance(message, dict) else {**part, "content": part.get("response")}
    yield from _message(message)
    for call in objects(message.get("tool_calls")):
        yield from _named(call.get("function"))


def _gemini(part: Json) -> Iterator[Piece]:
    for candidate in objects(part.get("candidates")):
        if candidate.get("index"):
            continue
        for content_part in parts_of(candidate.get("content")):
            if isinstance(text := content_part.get("text"), str):
                yield ("thought", "") if content_part.get("thought") else ("text", text)
            yield from _named(member(content_part, "functionCall"))


PIECES: dict[str, Callable[[], Callable[[Json], Iterator[Piece]]]] = {
    "chat": _Chat,
    "completions": lambda: _Chat(as_chat),
    "responses": lambda: _responses,
    "messages": lambda: _messages,
    "ollama_chat": lambda: _ollama,
    "ollama_generate": lambda: _ollama,
    "gemini": lambda: _gemini,
}
"""What reads the parts of one answer, by the name of the surface."""
