"""A chat completion, read as it comes: bytes in, pieces of what the model says out."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Any

from burnish.proxy.surfaces import bodies
from burnish.proxy.surfaces.decoding import Undecodable, decode
from burnish.proxy.surfaces.lenient import dumps, loads
from burnish.proxy.surfaces.merging import call_of
from burnish.proxy.surfaces.sse import DONE, SseParser
from burnish.proxy.surfaces.writing import Call, Piece

THOUGHTS = ("reasoning_content", "reasoning")
"""Where engines put what a model thinks, each in one of them, or the same in both."""


class ChatReader:
    """Reads one answer, streamed or whole."""

    def __init__(self, content_type: str, content_encoding: str) -> None:
        self._parser = SseParser()
        self._content_type = content_type
        self._encoding = content_encoding
        # Only a stream that nobody has compressed can be read before it is over.
        self._kept: list[bytes] | None = (
            [] if content_encoding or "event-stream" not in content_type else None
        )
        self._calls: list[dict[str, Any]] = []
        self._half = ""
        self.finish_reason: str | None = None
        self.usage: dict[str, Any] | None = None
        self.done = False
        """Whether the stream said that nothing more will come."""
        self.error: str | None = None
        """What the upstream says went wrong."""

    @property
    def ended(self) -> bool:
        """Whether the answer said that it is whole."""
        return self.done or self.finish_reason is not None

    def feed(self, data: bytes) -> list[Piece]:
        """Take the next bytes."""
        if self._kept is not None:
            self._kept.append(data)
            return []
        return self._events(self._parser.feed(data))

    def close(self) -> list[Piece]:
        """Return what was left to say when the last byte had come."""
        if self._kept is None:
            return self._events(self._parser.close())
        try:
            body = decode(b"".join(self._kept), self._encoding)
            if bodies.is_streamed(body, self._content_type):
                return self._events([*self._parser.feed(body), *self._parser.close()])
            whole = loads(body)
        except (Undecodable, ValueError) as error:
            self.error = f"the upstream's answer cannot be read: {error}"
            return []
        if not isinstance(whole, dict):
            return []
        self.done = bool(whole.get("choices"))
        return list(self._read(whole, "message"))

    def _events(self, events: list[Any]) -> list[Piece]:
        pieces: list[Piece] = []
        for event in events:
            if self.done:
                break
            if event.data.strip() == DONE:
                self.done = True
                break
            try:
                chunk = loads(event.data)
            except ValueError:
                continue  # a server's small talk
            if isinstance(chunk, dict):
                pieces += self._read(chunk, "delta")
        return pieces

    def _read(self, chunk: dict[str, Any], member: str) -> Iterator[Piece]:
        self.error = self.error or bodies.error_in(chunk)
        if isinstance(chunk.get("usage"), dict):
            self.usage = chunk["usage"]
        choices = chunk.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            if not isinstance(choice, dict) or choice.get("index"):
                continue
            if isinstance(choice.get("finish_reason"), str):
                self.finish_reason = choice["finish_reason"] or self.finish_reason
            if isinstance(said := choice.get(member), dict):
                for piece in self._said(said, whole=member == "message"):
                    yield piece if piece.text.isascii() else piece._replace(text=self._characters(piece.text))

    def _characters(self, text: str) -> str:
        """Return a text that UTF-8 can hold: of a character that comes in two halves the first one waits."""
        text = self._half + text
        self._half = text[-1] if "\ud800" <= text[-1] <= "\udbff" else ""
        return text.removesuffix(self._half).encode("utf-16", "surrogatepass").decode("utf-16", "replace")

    def _said(self, said: dict[str, Any], *, whole: bool) -> Iterator[Piece]:
        if thought := next((said[name] for name in THOUGHTS if isinstance(said.get(name), str)), ""):
            yield Piece("thought", thought)
        yield from _content(said.get("content"))
        if isinstance(refusal := said.get("refusal"), str) and refusal:
            yield Piece("refusal", refusal)
        calls = said.get("tool_calls")
        for number, piece in enumerate(calls if isinstance(calls, list) else ()):
            if isinstance(piece, dict) and isinstance(function := piece.get("function"), dict):
                yield self._called({**piece, "index": number} if whole else piece, function)

    def _called(self, piece: dict[str, Any], function: dict[str, Any]) -> Piece:
        known = call_of(self._calls, piece)
        if known is None:
            name = piece.get("id") or f"call_{secrets.token_hex(8)}"
            call = Call(str(name), str(function.get("name") or ""))
            known = {"index": piece.get("index"), "id": piece.get("id"), "call": call}
            self._calls.append(known)
        arguments = function.get("arguments")
        if isinstance(arguments, dict):  # not as the format has it, yet what some servers send
            arguments = dumps(arguments)
        return Piece("call", arguments if isinstance(arguments, str) else "", known["call"])


def _content(content: Any) -> Iterator[Piece]:
    if isinstance(content, str):
        if content:
            yield Piece("text", content)
        return
    for part in content if isinstance(content, list) else ():  # as Mistral's reasoning models answer
        if isinstance(part, dict) and isinstance(part.get("text"), str):
            yield Piece("text", part["text"])
        elif isinstance(part, dict) and isinstance(part.get("thinking"), list):
            for thought in _content(part["thinking"]):
                yield thought._replace(kind="thought")
