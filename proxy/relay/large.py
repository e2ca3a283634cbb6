"""Reads large requests in a child process, which returns the little that the relay must know of them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple, ParamSpec, TypeVar

import orjson

from burnish.proxy.http.errors import BodyTooLarge
from burnish.proxy.relay.client import parse, read_request
from burnish.proxy.relay.commands import COMMAND, OWN_WORDS
from burnish.proxy.relay.outbound import Spans, models_in
from burnish.proxy.rl.commands import find_command, unanswered
from burnish.proxy.surfaces import ChatRequest, Surface
from burnish.proxy.surfaces.lenient import Json
from burnish.system.apart import OutOfTime, WorkerExit, WorkerProcess

logger = logging.getLogger(__name__)

READ_LIMIT_S = 10.0
"""CPU time for reading one request; only dense JSON of many megabytes takes longer than one second."""

Given = ParamSpec("Given")
Result = TypeVar("Result")


async def reading(
    apart: WorkerProcess, read: Callable[Given, Result], *args: Given.args, **more: Given.kwargs
) -> Result:
    """Read a request in the child process, or here if there is none. Raises BodyTooLarge, and what ``read`` raises."""
    try:
        return await apart.ask(read, *args, **more)
    except WorkerExit as error:
        logger.warning("a large request is read in burnish's own process: %s", error)
        return read(*args, **more)
    except OutOfTime as error:
        raise BodyTooLarge(
            f"the body can't be read in {READ_LIMIT_S:g} s: send a shorter one, or fewer and longer values"
        ) from error


class Gist(NamedTuple):
    """A request without its conversation."""

    asked: Json
    """The body."""
    request: ChatRequest
    asks: bool
    """Whether it has a message."""
    changed: bytes | None
    """The body as it goes on; None if that is as it came."""
    named_at: Spans
    """Where that names the model."""


def gist_of(surface: Surface, path: str, body: bytes) -> Gist | None:
    """Return None if a ``/rl`` is in it, for which all of it is needed. Raises InvalidRequest."""
    asked, request = read_request(surface, path, body)
    messages = request.messages
    if OWN_WORDS in body or find_command(messages) or (COMMAND in body and unanswered(messages)):
        return None
    changed = orjson.dumps(surface.without(asked, request, set())) if request.after_command else None
    short = {name: value for name, value in asked.items() if name not in surface.fields}
    return Gist(
        short,
        replace(request, messages=[], origins=None),
        bool(messages),
        changed,
        models_in(body if changed is None else changed),
    )


def model_in(surface: Surface, body: bytes) -> tuple[str | None, Spans]:
    """Return the model that a request names, and where. Raises InvalidRequest."""
    return surface.read(parse(body)).model, models_in(body)


def with_system(surface: Surface, body: bytes, text: str) -> tuple[bytes, Spans] | None:
    """Return a body with a text in its system prompt, and where it names the model; None if it has no place for it."""
    asked = surface.with_system(parse(body), text)
    if asked is None:
        return None
    extended = orjson.dumps(asked)
    return extended, models_in(extended)
