"""From an exchange as the relay saw it to what the log stores. Pure; runs on the writer thread."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import orjson

from burnish.proxy.log.tree import Step, path, step
from burnish.proxy.records import Exchange, Outcome
from burnish.proxy.surfaces import SURFACES
from burnish.proxy.surfaces.base import Reply
from burnish.proxy.surfaces.lenient import loads_storable
from burnish.proxy.surfaces.references import TYPE

FIRST_ERROR_STATUS = 400
DEFINITION_BYTES = 256
"""Parameters longer than this (tools, response formats) are stored apart from the small ones, which may change
from turn to turn, so that they are stored once."""
PER_REQUEST = ("metadata", "client_metadata")
"""What clients note of each request, however long, is no definition: Codex's differs each time."""

NAMING = TYPE.encode()
"""In every request that names items instead of sending them."""
NO_REPLY = Reply()


class Captured(NamedTuple):
    """One exchange, understood as far as it can be."""

    exchange: Exchange
    outcome: Outcome
    error: str | None
    context: tuple[Step, ...] = ()
    settings: bytes | None = None
    """Small parameters, as JSON."""
    definitions: bytes | None = None
    """Large parameters, as JSON."""
    reply: Step | None = None
    answer: Reply = NO_REPLY
    choices: bytes | None = None
    raw: bool = False
    """Whether the bytes themselves must be kept, because something in them was not understood."""
    previous: str | None = None
    """Id of the response that it goes on from; ``context`` lacks what the upstream holds until that is looked up."""
    named: bool = False
    """Whether ``context`` may have names in the place of answers."""
    conversation_id: str | None = None
    """The conversation that it belongs to, where that is known."""
    continues: str | None = None
    """Then the completion whose reply it goes on from, too."""


def understand(exchange: Exchange) -> Captured:
    """Parse the request and reassemble the answer. Raises whatever a malformed request raises."""
    if exchange.passthrough is not None:
        return Captured(exchange, exchange.outcome, exchange.error)
    surface = SURFACES[exchange.surface]
    request = surface.read(loads_storable(exchange.request_body))
    answer = surface.reassemble(exchange.chunks, exchange.content_type, exchange.content_encoding)
    context = tuple(path(request.messages))
    answer = _as_cut_as_it_is(answer, request.params)
    outcome, error = _ending(exchange, answer)
    settings, definitions = _parameters(request.params)
    return Captured(
        exchange=exchange,
        outcome=outcome,
        error=error,
        context=context,
        settings=settings,
        definitions=definitions,
        reply=step(answer.message, context[-1] if context else None) if answer.message else None,
        answer=answer,
        choices=orjson.dumps(answer.choices) if answer.choices else None,
        raw=not answer.readable,
        previous=request.previous,
        named=surface.name == "responses" and NAMING in exchange.request_body,
    )


def misunderstood(exchange: Exchange, fault: Exception) -> Captured:
    """Keep an exchange that could not be parsed, with its bytes and the reason."""
    reason = f"not understood by burnish: {type(fault).__name__}: {fault}"
    return Captured(
        exchange, exchange.outcome, f"{exchange.error}; {reason}" if exchange.error else reason, raw=True
    )


def _ending(exchange: Exchange, answer: Reply) -> tuple[Outcome, str | None]:
    """Say how it really ended: a stream can end well as HTTP and still have broken off as an answer."""
    error = exchange.error or answer.error
    fine = exchange.status is not None and exchange.status < FIRST_ERROR_STATUS
    whole = answer.ended or not (answer.readable or answer.message)
    if exchange.outcome == "complete" and fine and not whole:
        return "cut", error or "the answer ended without a finish_reason"
    return exchange.outcome, error


def _as_cut_as_it_is(answer: Reply, params: dict[str, Any]) -> Reply:
    """Say of an answer that it was cut where it is as long as it may be: llama.cpp calls such responses completed."""
    limit = params.get("max_output_tokens")
    used = answer.usage.get("completion_tokens") if answer.usage else None
    full = isinstance(limit, int) and isinstance(used, int) and used >= limit
    return replace(answer, finish_reason="length") if full and answer.finish_reason == "stop" else answer


def _parameters(params: dict[str, Any]) -> tuple[bytes | None, bytes | None]:
    """Return the small parameters and the large ones, as JSON; None where there are none."""
    small: dict[str, Any] = {}
    large: dict[str, Any] = {}
    for key, value in params.items():
        (large if _is_large(value) and key not in PER_REQUEST else small)[key] = value
    return orjson.dumps(small) if small else None, orjson.dumps(large) if large else None


def _is_large(value: Any) -> bool:
    return isinstance(value, (dict, list, str)) and len(orjson.dumps(value)) > DEFINITION_BYTES
