"""The HTTP routes of feedback and of the log. Handlers raise the errors of this room; the app answers them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from burnish.proxy.errors import BodyTooLarge, InvalidRequest, Unprocessable, UnsupportedMediaType
from burnish.proxy.feedback.targets import draft_of, read_feedback
from burnish.proxy.log import Log
from burnish.proxy.records import Completion, Feedback

MAX_BODY_BYTES = 1024 * 1024
"""Of one piece of feedback; the longest comment and correction fit in."""
DEFAULT_PAGE, MAX_PAGE = 50, 1000

CALLER_HEADER, SESSION_HEADER = "x-burnish-user", "x-burnish-session"
LOCAL_CALLER = "local"


def feedback_routes(log: Log, on_feedback: Callable[[Feedback], None]) -> list[Route]:
    """Return the routes under /v1/feedback; ``on_feedback`` is told of every new record and every undo."""

    async def create(request: Request) -> Response:
        asked = read_feedback(await _json_body(request))
        caller = request.headers.get(CALLER_HEADER) or LOCAL_CALLER
        draft = await draft_of(asked, log, caller, request.headers.get(SESSION_HEADER))
        feedback, created = await log.add_feedback(draft)
        if created:
            on_feedback(feedback)
        return _json(feedback_json(feedback), 201 if created else 200)

    async def index(request: Request) -> Response:
        query = request.query_params
        found = await log.feedbacks(
            query.get("completion_id"), query.get("conversation_id"), _limit(request) + 1, query.get("before")
        )
        return _json(_page([feedback_json(each) for each in found], _limit(request)))

    async def show(request: Request) -> Response:
        return _json(feedback_json(await log.feedback(request.path_params["id"])))

    async def undo(request: Request) -> Response:
        feedback = await log.undo_feedback(request.path_params["id"])
        on_feedback(feedback)
        return _json(feedback_json(feedback))

    return [
        Route("/v1/feedback", create, methods=["POST"]),
        Route("/v1/feedback", index, methods=["GET"]),
        Route("/v1/feedback/{id}", show, methods=["GET"]),
        Route("/v1/feedback/{id}", undo, methods=["DELETE"]),
    ]


def completion_routes(log: Log) -> list[Route]:
    """Return the routes under /burnish/completions."""

    async def index(request: Request) -> Response:
        query = request.query_params
        found = await log.completions(_limit(request) + 1, query.get("before"), query.get("conversation"))
        return _json(_page([completion_json(each) for each in found], _limit(request)))

    async def show(request: Request) -> Response:
        return _json(completion_json(await log.completion(request.path_params["id"])))

    return [
        Route("/burnish/completions", index, methods=["GET"]),
        Route("/burnish/completions/{id}", show, methods=["GET"]),
    ]


def feedback_json(feedback: Feedback) -> dict[str, Any]:
    """Return a record as clients see it: one flat object."""
    record = asdict(feedback)
    draft = record.pop("draft")
    return {"object": "feedback", **record, **draft}


def completion_json(completion: Completion) -> dict[str, Any]:
    """Return a completion as clients see it."""
    return {"object": "completion", **asdict(completion)}


def _page(records: list[dict[str, Any]], limit: int) -> dict[str, Any]:
    return {"object": "list", "data": records[:limit], "has_more": len(records) > limit}


def _limit(request: Request) -> int:
    given = request.query_params.get("limit", str(DEFAULT_PAGE))
    if not (given.isascii() and given.isdecimal() and 1 <= int(given[:9]) <= MAX_PAGE):
        raise Unprocessable(f"limit must be a number from 1 to {MAX_PAGE}, not {given[:20]!r}", param="limit")
    return int(given)


async def _json_body(request: Request) -> Any:
    # A web page can't send this type to another origin without asking first (CSRF).
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise UnsupportedMediaType(f"content-type must be application/json, not {media_type or 'missing'!r}")
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            raise BodyTooLarge(f"feedback may have {MAX_BODY_BYTES} bytes at most")
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise InvalidRequest(f"the body is not valid JSON: {error}") from error


def _json(content: dict[str, Any], status: int = 200) -> Response:
    return Response(orjson.dumps(content), status, media_type="application/json")
