"""The cases: who asks what, and what may come of it."""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus

from bench.hostile import clients
from bench.hostile.answers import ANSWERS, CHAT_PATH, MESSAGES_PATH, NATIVE, RESPONSES_PATH, STREAMED
from bench.hostile.clients import OLLAMA_PATH, Prepare, asks

ANY = frozenset(range(600))
REFUSED = frozenset((HTTPStatus.BAD_REQUEST, HTTPStatus.FORBIDDEN))


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    prepare: Prepare
    answer: str = "ordinary"
    """Of the upstream, to the hostile request."""
    logged: bool = True
    """Whether it has to be in the log afterwards."""
    allowed: frozenset[int] = ANY
    """Statuses that a hostile client may get; 0: no answer."""


def answered(answer: str, path: str, allowed: frozenset[int] = ANY) -> Case:
    """Return the case of a hostile answer to an ordinary request."""
    native = path == NATIVE.get(answer, CHAT_PATH)
    form = "native" if native else path.removeprefix("/v1").strip("/").replace("/", "-")
    return Case(f"{answer}, {form}", asks(path, stream=answer in STREAMED), answer, allowed=allowed)


TRANSLATED_TWICE = ("calls", "calls-whole", "long-event")
"""Answers that two translations get; the others get one."""
BROKEN_OFF = "broken-off"
CASES = (
    *(
        answered(answer, path)
        for answer in ANSWERS
        if answer not in ("ordinary", BROKEN_OFF, *NATIVE)
        for path in (CHAT_PATH, MESSAGES_PATH, *((RESPONSES_PATH,) if answer in TRANSLATED_TWICE else ()))
    ),
    *(answered(answer, path) for answer, path in NATIVE.items()),
    answered(BROKEN_OFF, MESSAGES_PATH, frozenset((HTTPStatus.BAD_GATEWAY,))),
    answered(BROKEN_OFF, OLLAMA_PATH, frozenset((HTTPStatus.BAD_GATEWAY,))),
    Case("request of 100,000 messages, native", clients.many_messages(CHAT_PATH)),
    Case("request of 100,000 messages, messages", clients.many_messages(MESSAGES_PATH)),
    Case("request of unnamed results, api-chat", clients.unnamed_results),
    Case("request of 60 MB", clients.large_message),
    Case("request as gzip bomb", clients.gzip_bomb, logged=False),
    Case("request of gzip members", clients.gzip_members),
    Case("request, nested", clients.nested),
    Case("percent-encoded paths", clients.percent_encoded, logged=False, allowed=REFUSED),
    Case("management routes", clients.management, logged=False, allowed=REFUSED),
    Case("other hosts", clients.other_hosts, logged=False, allowed=REFUSED),
    Case("slow heads", clients.slow_heads, logged=False),
    Case("stalled uploads", clients.stalled_uploads, logged=False),
    Case("aborted bodies of own routes", clients.aborted_bodies, logged=False),
)
