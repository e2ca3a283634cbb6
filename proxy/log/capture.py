"""Parses a completion's bytes into what the log stores. Runs on the writer thread; large ones in a child process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import wait
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

import orjson

from burnish.proxy.log.tree import PathStep, path, step
from burnish.proxy.records import Completion, CompletionEnd, RequestFacts, Wire
from burnish.proxy.surfaces import SURFACES
from burnish.proxy.surfaces.base import ChatRequest, Reply
from burnish.proxy.surfaces.items import held, references
from burnish.proxy.surfaces.lenient import TooLong, Undecodable, decode, loads_storable
from burnish.system.apart import LARGE_BYTES, NotStarted, OutOfTime, WorkerProcess

FIRST_ERROR_STATUS = 400
DEFINITION_BYTES = 256
"""Parameters longer than this (tools, response formats) are stored apart from the small ones, which may change
from turn to turn, so that they are stored once."""
PER_REQUEST = ("metadata", "client_metadata")
"""What clients note of each request, however long, is no definition: Codex's differs each time."""

MEANWHILE_S = 0.02
"""Between two looks at what else is to be done."""


class Continuation(NamedTuple):
    conversation_id: str
    continues: str | None
    """The completion whose reply is the last assistant message of its context; None if that isn't certain."""


class Parsed(NamedTuple):
    """A completion, parsed as far as it can be."""

    completion: Completion
    context: tuple[PathStep, ...] = ()
    settings: bytes | None = None
    """Small parameters, as JSON."""
    definitions: bytes | None = None
    """Large parameters, as JSON."""
    reply: PathStep | None = None
    """The assistant's reply, as the step behind ``context``."""
    usage: bytes | None = None
    """As the upstream counted it, as JSON."""
    choices: bytes | None = None
    raw: bool = False
    """Whether the bytes must be kept, because something in them could not be parsed."""
    previous: str | None = None
    """Id of the response that it continues; ``context`` lacks what the upstream holds until that is looked up."""
    has_references: bool = False
    """Whether ``context`` names answers instead of containing them."""
    items: tuple[str, ...] = ()
    """Ids of the items of the answer."""
    continuation: Continuation | None = None
    """Where it belongs, if that is known already."""


def read(completion: Completion, child: WorkerProcess, meanwhile: Callable[[], None]) -> Parsed:
    """Parse a completion, a large one in the child process, and call ``meanwhile`` now and then until that is done.

    Raises what they raise, and OutOfTime.
    """
    wire = completion.wire
    short = _short(wire)
    if short is wire:
        return parsed(completion)
    if short:
        reading = parsed(completion._replace(wire=short))
    else:
        future = child.submit(_parsed_apart, completion)
        while wait([future], MEANWHILE_S).not_done:
            meanwhile()
        try:
            reading = future.result()
        except NotStarted:
            reading = parsed(completion)
    return reading._replace(completion=reading.completion._replace(wire=wire))


def _short(wire: Wire) -> Wire | None:
    """Return the bytes with a decoded answer; None if they are large."""
    room = LARGE_BYTES - len(wire.request_body)
    if wire.content_encoding and room > 0:
        try:
            body = decode(b"".join(wire.chunks), wire.content_encoding, room)
        except TooLong:
            return None
        except Undecodable:
            return wire
        wire = wire._replace(chunks=(body,), content_encoding="")
    return wire if sum(map(len, wire.chunks)) <= room else None


def _parsed_apart(completion: Completion) -> Parsed:
    reading = parsed(completion)
    return reading._replace(completion=reading.completion._replace(wire=Wire()))


def parsed(completion: Completion) -> Parsed:
    """Parse the request and reassemble the answer; an answer that takes too long isn't read.

    Raises whatever a malformed request raises; OutOfTime if the request takes too long.
    """
    client_request, wire = completion.asked, completion.wire
    surface = SURFACES[client_request.surface]
    request = surface.read(loads_storable(wire.request_body))
    messages: Sequence[dict[str, Any]] = (
        request.messages
        if request.remote_context is None
        else with_held(request.messages, request.params, request.remote_context)
    )
    context = tuple(path(messages))
    try:
        answer = surface.reassemble(wire.chunks, wire.content_type, wire.content_encoding)
    except OutOfTime as error:
        answer = Reply(error=f"the answer was not read: {error}", readable=False)
    if client_request.surface == "completions" and len(messages) > 1 and answer.message:
        messages, answer = of_own_prompts(messages, answer, request.params.get("n"))
        context = tuple(path(messages))
    settings, definitions = parameters(request.params)
    ending = ended(completion.ended, answer, request, streamed=request.stream or wire.streamed)
    return Parsed(
        completion=completion._replace(ended=ending),
        context=context,
        settings=settings,
        definitions=definitions,
        reply=step(answer.message, context[-1] if context else None) if answer.message else None,
        usage=orjson.dumps(answer.usage) if answer.usage else None,
        choices=orjson.dumps(answer.choices) if answer.choices else None,
        raw=not answer.readable,
        previous=request.previous,
        has_references=client_request.surface == "responses"
        and any(True for message in request.messages for _ in references(message)),
        items=answer.items,
    )


def with_held(messages: Sequence[dict[str, Any]], params: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """Return messages with a mark before them, behind the instructions: the upstream puts something there."""
    first = 1 if params.get("instructions") is True else 0
    return [*messages[:first], held(name), *messages[first:]]


def of_own_prompts(
    prompts: Sequence[dict[str, Any]], answer: Reply, several: Any
) -> tuple[Sequence[dict[str, Any]], Reply]:
    """Return the prompt of the first choice, and the answer with the prompt of each choice that answers another.

    ``several``: the number of choices for each prompt.
    """
    count = several if isinstance(several, int) and several > 0 else 1
    places = [choice["index"] // count for choice in answer.choices]
    if not places or not all(0 <= place < len(prompts) for place in places):
        why = "which of the prompts it answers is unknown"
        return prompts, replace(answer, message=None, choices=(), readable=False, error=answer.error or why)
    choices = tuple(
        choice if place == places[0] else choice | {"prompt": prompts[place]["content"]}
        for choice, place in zip(answer.choices, places, strict=True)
    )
    return [prompts[places[0]]], replace(answer, choices=choices)


def unparsed(completion: Completion, fault: Exception) -> Parsed:
    """Return a completion that could not be parsed: its bytes, with the reason as its error."""
    reason = f"burnish could not parse it: {type(fault).__name__}: {fault}"
    error = f"{completion.ended.error}; {reason}" if completion.ended.error else reason
    ending, client_request = completion.ended._replace(error=error), _within_range(completion.asked)
    return Parsed(completion._replace(asked=client_request, ended=_within_range(ending)), raw=True)


Part = TypeVar("Part", RequestFacts, CompletionEnd)


def _within_range(part: Part) -> Part:
    """Leave out numbers that SQLite can't hold."""
    fields = part._asdict().items()
    large = [name for name, field in fields if isinstance(field, int) and not -(2**63) <= field < 2**63]
    less: dict[str, Any] = {name: part._field_defaults.get(name) for name in large}
    return part._replace(**less)


def ended(ending: CompletionEnd, answer: Reply, request: ChatRequest, *, streamed: bool) -> CompletionEnd:
    """Add what the answer says of its end: a stream can end well as HTTP, and break off as an answer."""
    outcome, error, finish_reason = ending.outcome, ending.error or answer.error, answer.finish_reason
    succeeded = ending.status is not None and ending.status < FIRST_ERROR_STATUS
    whole = answer.complete or not (answer.readable or answer.message)
    if outcome == "complete" and succeeded and not whole:
        outcome, error = "cut", error or "the answer ended without a finish_reason"
    elif outcome in ("cancelled", "cut") and streamed and succeeded and answer.complete:
        outcome, error = "complete", answer.error  # some clients leave at the last event
    if answer.own_end and finish_reason == "stop" and request.params.get("stop"):
        finish_reason = "eos"
    used, limit = _tokens(answer, "completion_tokens"), request.params.get("max_output_tokens")
    if finish_reason == "stop" and used is not None and isinstance(limit, int) and used >= limit:
        finish_reason = "length"  # llama.cpp reports such responses as completed
    return ending._replace(
        outcome=outcome,
        error=error,
        response_id=answer.response_id,
        finish_reason=finish_reason,
        prompt_tokens=_tokens(answer, "prompt_tokens"),
        completion_tokens=used,
        choice_count=max(1, sum("message" in choice for choice in answer.choices)),
    )


def _tokens(answer: Reply, name: str) -> int | None:
    """Return a count of tokens, None if the upstream states none or one that the log can't hold."""
    count = answer.usage.get(name) if answer.usage else None
    return count if isinstance(count, int) and 0 <= count < 2**63 else None


def parameters(params: dict[str, Any]) -> tuple[bytes | None, bytes | None]:
    """Return the small parameters and the large ones, as JSON; None where there are none."""
    small: dict[str, Any] = {}
    large: dict[str, Any] = {}
    for key, parameter in params.items():
        sized = isinstance(parameter, (dict, list, str)) and key not in PER_REQUEST
        (large if sized and len(orjson.dumps(parameter)) > DEFINITION_BYTES else small)[key] = parameter
    return orjson.dumps(small) if small else None, orjson.dumps(large) if large else None
