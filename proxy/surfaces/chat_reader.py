"""Read a chat completion as it arrives: bytes in, pieces of the answer out."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Any

from burnish.proxy.surfaces.choices import Calls
from burnish.proxy.surfaces.lenient import Json, TooMuch, decode, dumps, error_in, loads, object_in, objects
from burnish.proxy.surfaces.sse import DONE, EVENT_LIMIT_BYTES, SseParser, is_streamed
from burnish.proxy.surfaces.writing import AnswerPiece, ToolCall

THOUGHTS = ("reasoning_content", "reasoning")
"""Members in which engines send thoughts: one of them, or the same text in both."""


class ChatReader:
    def __init__(self, content_type: str, content_encoding: str) -> None:
        self._parser = SseParser(EVENT_LIMIT_BYTES)
        self._content_type = content_type
        self._encoding = content_encoding
        self.early = not content_encoding and "event-stream" in content_type
        """Whether it can be read while it arrives."""
        self._kept: list[bytes] | None = None if self.early else []
        self._calls: Calls[ToolCall] = Calls()
        self._half = ""
        self.finish_reason: str | None = None
        self.usage: Json | None = None
        self.done = False
        """Whether the stream declared its end."""
        self.error: str | None = None
        """The upstream's error message."""

    @property
    def ended(self) -> bool:
        """True if the answer declared that it is complete."""
        return self.done or self.finish_reason is not None

    def feed(self, chunk: bytes) -> list[AnswerPiece]:
        if self._kept is not None:
            self._kept.append(chunk)
            return []
        try:
            return self._events(self._parser.feed(chunk))
        except TooMuch as error:
            self._fail(error)
            return []

    def close(self) -> list[AnswerPiece]:
        """Return the remaining pieces after the last byte."""
        try:
            if self._kept is None:
                return self._events(self._parser.close())
            body = decode(b"".join(self._kept), self._encoding)
            if is_streamed(body, self._content_type):
                parser = SseParser()
                return self._events([*parser.feed(body), *parser.close()])
            whole = loads(body)
            if not isinstance(whole, dict):
                return []
            self.done = bool(whole.get("choices"))
            return list(self._read(whole, "message"))
        except ValueError as error:
            self._fail(error)
            return []

    def _fail(self, error: ValueError) -> None:
        self.error = f"the upstream's answer cannot be read: {error}"

    def _events(self, events: list[Any]) -> list[AnswerPiece]:
        pieces: list[AnswerPiece] = []
        for event in events:
            if self.done:
                break
            if event.data.strip() == DONE:
                self.done = True
                break
            if chunk := object_in(event.data):  # some servers send other text
                pieces += self._read(chunk, "delta")
        return pieces

    def _read(self, chunk: Json, member: str) -> Iterator[AnswerPiece]:
        self.error = self.error or error_in(chunk)
        if isinstance(chunk.get("usage"), dict):
            self.usage = chunk["usage"]
        for choice in objects(chunk.get("choices")):
            if choice.get("index"):
                continue
            if isinstance(choice.get("finish_reason"), str):
                self.finish_reason = choice["finish_reason"] or self.finish_reason
            if isinstance(message := choice.get(member), dict):
                for piece in self._pieces_of(message, whole=member == "message"):
                    yield piece if piece.text.isascii() else piece._replace(text=self._characters(piece.text))

    def _characters(self, text: str) -> str:
        """Return a valid text; the first half of a surrogate pair waits for the second."""
        text = self._half + text
        self._half = text[-1] if "\ud800" <= text[-1] <= "\udbff" else ""
        return text.removesuffix(self._half).encode("utf-16", "surrogatepass").decode("utf-16", "replace")

    def _pieces_of(self, message: Json, *, whole: bool) -> Iterator[AnswerPiece]:
        if thought := next((message[name] for name in THOUGHTS if isinstance(message.get(name), str)), ""):
            yield AnswerPiece("thought", thought)
        yield from _content(message.get("content"))
        if isinstance(refusal := message.get("refusal"), str) and refusal:
            yield AnswerPiece("refusal", refusal)
        for number, piece in enumerate(objects(message.get("tool_calls"))):
            if isinstance(function := piece.get("function"), dict):
                yield self._called({**piece, "index": number} if whole else piece, function)

    def _called(self, piece: Json, function: Json) -> AnswerPiece:
        call = self._calls.of(piece, _begun)
        arguments = function.get("arguments")
        if isinstance(arguments, dict):  # against the format, but some servers send it
            arguments = dumps(arguments)
        return AnswerPiece("call", arguments if isinstance(arguments, str) else "", call)


def _begun(piece: Json) -> ToolCall:
    name = piece.get("id") or f"call_{secrets.token_hex(8)}"
    return ToolCall(str(name), str(piece["function"].get("name") or ""))


def _content(content: Any) -> Iterator[AnswerPiece]:
    if isinstance(content, str):
        if content:
            yield AnswerPiece("text", content)
        return
    for part in objects(content):  # Mistral's reasoning models send parts
        if isinstance(part.get("text"), str):
            yield AnswerPiece("text", part["text"])
        elif isinstance(part.get("thinking"), list):
            for thought in _content(part["thinking"]):
                yield thought._replace(kind="thought")
