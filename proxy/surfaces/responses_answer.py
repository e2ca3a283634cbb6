"""Our own answers in the Responses format, with ids that hold the response before them.

A client that lets the server hold its history sends the id of the previous answer. If that is one of ours, the upstream
doesn't know it. Our id holds the upstream's, so burnish needs no state.
"""

from __future__ import annotations

import base64
import binascii
from collections import deque
from collections.abc import Iterator
from typing import Any

from burnish.proxy.surfaces.chat import NO_USAGE
from burnish.proxy.surfaces.references import COMMAND_PREFIX
from burnish.proxy.surfaces.responses_writer import ResponseWriter, begun
from burnish.proxy.surfaces.writing import Piece

OURS = "resp_rl_"


def our_id(completion_id: str, previous: str | None) -> str:
    """Return the id of our answer after a response, or after none."""
    token = base64.urlsafe_b64encode((previous or "").encode()).decode().rstrip("=")
    return f"{OURS}{completion_id.removeprefix('cmpl_')}_{token}"


def is_ours(response_id: str) -> bool:
    """Return whether an id is one of ours."""
    return response_id.startswith(OURS)


def previous_of(our_id: str) -> str | None:
    """Return the id of the response before our answer; None if there is none."""
    token = our_id.removeprefix(OURS).partition("_")[2]
    try:
        return base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode() or None
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return None


def answer(text: str, completion_id: str, model: str, previous: str | None) -> dict[str, Any]:
    """Return a whole response with a text."""
    writer = _writer(completion_id, model, previous)
    deque(_events(writer, text), maxlen=0)
    return writer.whole()


def answer_events(text: str, completion_id: str, model: str, previous: str | None) -> Iterator[bytes]:
    """Return the events of a streamed response with a text."""
    return _events(_writer(completion_id, model, previous), text)


def _writer(completion_id: str, model: str, previous: str | None) -> ResponseWriter:
    head = begun(our_id(completion_id, previous), model, previous)
    return ResponseWriter(head, completion_id.replace("_", f"_{COMMAND_PREFIX}", 1))


def _events(writer: ResponseWriter, text: str) -> Iterator[bytes]:
    yield from writer.begin()
    yield from writer.take(Piece("text", text))
    yield from writer.end("stop", NO_USAGE)
