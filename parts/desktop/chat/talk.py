"""The conversation: what was said, and how the model and burnish are asked."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from burnish.parts.desktop.chat.answers import AnswerPiece
from burnish.proxy.surfaces.sse import SseParser
from burnish.terminal.client import Proxy
from burnish.terminal.errors import CommandFailed

PATH = "/v1/chat/completions"
REASONING = ("reasoning_content", "reasoning")
"""How servers call the reasoning of a model."""


class ChatAnswer:
    """One answer while it arrives; iterating reads it. Raises CommandFailed for an error in the stream."""

    def __init__(self, completion: str | None, chunks: Iterable[bytes]) -> None:
        self.completion = completion
        """The ID by which it is rated."""
        self.text = ""
        self.finish: str | None = None
        self._chunks = chunks

    def __iter__(self) -> Iterator[AnswerPiece]:
        parser = SseParser()
        for chunk in self._chunks:
            for event in parser.feed(chunk):
                if event.data != "[DONE]":
                    yield from self._read(event.data)

    def _read(self, text: str) -> Iterator[AnswerPiece]:
        try:
            event: dict[str, Any] = json.loads(text)
            if error := event.get("error"):
                raise CommandFailed(str(error.get("message", error)))
            choice = (event.get("choices") or [{}])[0]
            delta = choice.get("delta") or {}
            self.finish = choice.get("finish_reason") or self.finish
        except (ValueError, AttributeError, LookupError, TypeError) as error:
            raise CommandFailed(f"expected a chunk of a chat completion, got: {text[:80]}") from error
        if thought := next(filter(None, map(delta.get, REASONING)), None):
            yield AnswerPiece("reasoning", str(thought))
        if words := delta.get("content"):
            self.text += str(words)
            yield AnswerPiece("content", str(words))


class Talk:
    def __init__(self, proxy: Proxy, model: str, system: str | None, sampling: dict[str, Any]) -> None:
        self.proxy = proxy
        self._model = model
        self._system = system
        self._sampling = sampling
        self._last_rating: str | None = None
        self.restart()

    def restart(self) -> None:
        self._messages = [{"role": "system", "content": self._system}] if self._system else []

    @contextmanager
    def asking(self, text: str) -> Iterator[ChatAnswer]:
        """Send a message. The answer becomes part of the conversation at the end of the block.

        After an error nothing does. Raises NotRunning, CommandFailed.
        """
        messages = [*self._messages, {"role": "user", "content": text}]
        body = {"model": self._model, "messages": messages, "stream": True, **self._sampling}
        with self.proxy.stream(PATH, body) as response:
            completion = response.headers.get("x-burnish-completion-id")
            answer = ChatAnswer(completion, self.proxy.chunks(response))
            yield answer
        if answer.text:
            self._messages = [*messages, {"role": "assistant", "content": answer.text}]

    def command(self, text: str) -> str:
        """Have burnish run a ``/rl`` command on the answer before it; return what it says."""
        messages = [*self._messages, {"role": "user", "content": text}]
        reply = self.proxy.post(PATH, {"model": self._model, "messages": messages})
        try:
            return str(reply["choices"][0]["message"]["content"])
        except (LookupError, TypeError) as error:
            raise CommandFailed(f"expected an answer of burnish, got: {str(reply)[:80]}") from error

    def rate(self, completion: str, rating: dict[str, Any]) -> dict[str, Any]:
        record: dict[str, Any] = self.proxy.post("/v1/feedback", {"completion_id": completion, **rating})
        self._last_rating = record["id"]
        return record

    def undo(self) -> dict[str, Any] | None:
        """Take back the last rating; return it, or None if there is none."""
        if self._last_rating is None:
            return None
        undone: dict[str, Any] = self.proxy.delete(f"/v1/feedback/{self._last_rating}")
        self._last_rating = None
        return undone
