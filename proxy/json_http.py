"""Read JSON requests and write JSON responses on our own routes."""

from __future__ import annotations

from typing import Any, TypeVar

import orjson
from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.requests import Request
from starlette.responses import Response

from burnish.proxy import client_headers
from burnish.proxy.access.access import identity_of
from burnish.proxy.http.errors import BodyTooLarge, InvalidRequest, Unprocessable, UnsupportedMediaType
from burnish.proxy.http.headers import named_headers

BROWSER = frozenset({"origin", "referer", "cookie"})
DEFAULT_PAGE, MAX_PAGE = 50, 1000


class Body(BaseModel):
    """A request body: unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


Valid = TypeVar("Valid", bound=Body)


async def read_json(request: Request, max_bytes: int, *, untyped: bool = False) -> Any:
    """Return the body; {} if it is empty. Raises UnsupportedMediaType, BodyTooLarge, InvalidRequest.

    ``untyped``: a tool on this machine may leave the content type out.
    """
    # A web page can't send this type to another origin without asking first (CSRF).
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json" and not (untyped and not media_type and _is_local_tool(request)):
        raise UnsupportedMediaType(
            f"the header content-type must be application/json, but is {media_type or 'missing'}. "
            "With curl add: -H 'content-type: application/json'"
        )
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > max_bytes:
            raise BodyTooLarge(f"the body is larger than {max_bytes} bytes: send less")
    try:
        return orjson.loads(body or b"{}")
    except orjson.JSONDecodeError as error:
        # Python's own json.dumps writes them.
        hint = "; NaN and Infinity aren't JSON" if b"NaN" in body or b"Infinity" in body else ""
        raise InvalidRequest(f"the body is not valid JSON: {error}{hint}") from error


def _is_local_tool(request: Request) -> bool:
    """Whether a program on this machine asks, and no web page: browsers send some of these headers with every POST."""
    by_browser = any(name in BROWSER or name.startswith("sec-") for name in request.headers)
    return identity_of(request.scope).local and not by_browser


def validated(model: type[Valid], body: Any) -> Valid:
    """Turn a body into a model. Raises Unprocessable, which names the field."""
    known_fields = ", ".join(model.model_fields)
    if not isinstance(body, dict):
        raise Unprocessable(f"the body must be a JSON object (known fields: {known_fields})")
    try:
        return model.model_validate(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        field = ".".join(str(part) for part in first["loc"]) or None
        if first["type"] == "extra_forbidden":
            raise Unprocessable(
                f"unknown field {field!r} (known fields: {known_fields})", param=field
            ) from error
        message = first["msg"].removeprefix("Value error, ")
        raise Unprocessable(f"{field or 'the body'}: {message}", param=field) from error


def caller_of(request: Request) -> str:
    return client_headers.caller_of(named_headers(request.scope))


def json_response(content: Any, status: int = 200) -> Response:
    # A cache that doesn't know our headers for keys could give one caller's answer to another.
    headers = {"cache-control": "no-store"}
    return Response(orjson.dumps(content), status, headers, media_type="application/json")


def check_query(request: Request, *names: str) -> None:
    """Raise InvalidRequest for a member of the query that isn't known."""
    if unknown := next((name for name in request.query_params if name not in names), None):
        raise InvalidRequest(
            f"unknown query member {unknown[:40]!r}: this route knows {', '.join(names)}", param=unknown[:40]
        )


def page_limit(request: Request, *members: str) -> int:
    """Return how many records a listing may have. Raises Unprocessable.

    ``members`` are the other members of its query. Raises InvalidRequest for any that it doesn't know.
    """
    check_query(request, "limit", *members)
    text = request.query_params.get("limit", str(DEFAULT_PAGE))
    if not (text.isascii() and text.isdecimal() and 1 <= int(text[:9]) <= MAX_PAGE):
        raise Unprocessable(f"limit must be a number from 1 to {MAX_PAGE}, not {text[:20]!r}", param="limit")
    return int(text)
