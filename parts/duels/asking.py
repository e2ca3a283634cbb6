"""Asks one version through the relay, so that its answer is logged like that of any client."""

from __future__ import annotations

from http import HTTPStatus
from typing import NamedTuple

import orjson
from starlette.types import ASGIApp

from burnish.proxy.access.access import Identity
from burnish.proxy.client_headers import CALLER, COMPLETION_ID, SESSION_HEADERS
from burnish.proxy.http.errors import Conflict, Unavailable
from burnish.proxy.http.headers import RawHeaders
from burnish.proxy.log.duels import SAMPLED_FOR_DUELS
from burnish.proxy.relay.inside import call

# Enough to judge by. A small model that never ends would otherwise keep the person waiting.
MAX_TOKENS = 1024
QUOTED_CHARACTERS = 300


class DuelCaller(NamedTuple):
    """Who asks."""

    caller: str
    identity: Identity
    authorization: str | None
    """For an engine that needs the caller's own key."""


class VersionAnswer(NamedTuple):
    completion_id: str
    text: str


async def ask(relay: ASGIApp, model: str, prompt: str, asker: DuelCaller) -> VersionAnswer:
    """Return the answer of a model to a prompt. Raises Conflict, and what the relay raises."""
    body = orjson.dumps(
        {"model": model, "messages": [{"role": "user", "content": prompt}], "max_tokens": MAX_TOKENS}
    )
    status, headers, content = await call(relay, _headers(asker), body, asker.identity)
    if status != HTTPStatus.OK:
        refusal = content[:QUOTED_CHARACTERS].decode(errors="replace")
        raise Conflict(
            f"the engine refused the prompt for one of the versions (status {status}: {refusal}): try another prompt",
            code="prompt_refused",
        )
    try:
        text = str(orjson.loads(content)["choices"][0]["message"]["content"] or "")
    except (ValueError, LookupError, TypeError) as error:
        raise Unavailable("the engine's answer can't be read: try again, or run `burnish doctor`") from error
    if not text.strip():
        raise Conflict("one of the versions gave an empty answer: try another prompt", code="empty_answer")
    return VersionAnswer(dict(headers)[COMPLETION_ID].decode(), text)


def _headers(asker: DuelCaller) -> RawHeaders:
    headers = [
        (b"host", b"127.0.0.1"),
        (b"content-type", b"application/json"),
        (CALLER, asker.caller.encode("latin-1", "replace")),
        # Apart from the sessions of agents, in which the person may rate "the last answer".
        (SESSION_HEADERS[0], SAMPLED_FOR_DUELS.encode()),
    ]
    if asker.authorization:
        headers.append((b"authorization", asker.authorization.encode("latin-1", "replace")))
    return headers
