"""Our own answers in the Responses format, and ids that say which response they stood on.

A client that lets the server hold its history names the answer before. That may be one of ours, which the upstream does
not know; its id tells the upstream's, so that nothing has to be remembered here.
"""

from __future__ import annotations

import base64
import binascii
from collections import deque
from collections.abc import Iterator
from typing import Any

from burnish.proxy.surfaces.chat import NO_USAGE
from burnish.proxy.surfaces.references import OF_COMMANDS
from burnish.proxy.surfaces.responses_writer import ResponseWriter, begun
from burnish.proxy.surfaces.writing import Piece

OURS = "resp_rl_"


def our_id(completion_id: str, previous: str | None) -> str:
    """Return the id of an answer of ours that stands on a response, or on none."""
    token = base64.urlsafe_b64encode((previous or "").encode()).decode().rstrip("=")
    return f"{OURS}{completion_id.removeprefix('cmpl_')}_{token}"


def is_ours(response_id: str) -> bool:
    """Whether an id is that of an answer of ours."""
    return response_id.startswith(OURS)


def stood_on(our_id: str) -> str | None:
    """Return the id of the response that an answer of ours stood on, None for none (or an id that says none)."""
    token = our_id.removeprefix(OURS).partition("_")[2]
    try:
        return base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode() or None
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return None


def answer(text: str, completion_id: str, model: str, previous: str | None) -> dict[str, Any]:
    """Return a whole response that says a text."""
    writer = _writer(completion_id, model, previous)
    deque(_said(writer, text), maxlen=0)
    return writer.whole()


def answer_events(text: str, completion_id: str, model: str, previous: str | None) -> Iterator[bytes]:
    """Say the same as a stream."""
    return _said(_writer(completion_id, model, previous), text)


def _writer(completion_id: str, model: str, previous: str | None) -> ResponseWriter:
    head = begun(our_id(completion_id, previous), model, previous)
    return ResponseWriter(head, completion_id.replace("_", f"_{OF_COMMANDS}", 1))


def _said(writer: ResponseWriter, text: str) -> Iterator[bytes]:
    yield from writer.begin()
    yield from writer.take(Piece("text", text))
    yield from writer.end("stop", NO_USAGE)
