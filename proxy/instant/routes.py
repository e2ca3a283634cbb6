"""The HTTP routes of wishes: every caller sees and changes the own list, whether it is in use or not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from burnish.proxy.instant.instant import Instant, addition
from burnish.proxy.json_http import caller_of, json_response, read_json, validated
from burnish.proxy.log import Log
from burnish.proxy.records import Wish

MAX_BODY_BYTES = 64 * 1024

Live = Callable[[], int | None]
"""Returns the version that is live; None where burnish swaps none."""


class WishRequest(BaseModel):
    """``POST /burnish/wishes`` and ``PATCH /burnish/wishes/{id}``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    text: Annotated[str, Field(min_length=1, strict=True)]


def wish_routes(log: Log, instant: Instant, live: Live) -> list[Route]:
    """Return the routes under /burnish/wishes."""

    async def index(request: Request) -> Response:
        caller = caller_of(request)
        listed = await instant.listed(caller, live())
        added = addition(listed)
        return json_response(
            {
                "object": "list",
                "instant": instant.on,
                "caller": caller,
                "text": added.text if added else None,
                "data": [wish_json(wish) | {"state": state} for wish, state in listed],
            }
        )

    async def create(request: Request) -> Response:
        caller, text = await _said(request)
        wish = await log.add_wish(caller, text)
        instant.changed(caller)
        return json_response(wish_json(wish), 201)

    async def edit(request: Request) -> Response:
        caller, text = await _said(request)
        wish = await log.edit_wish(caller, request.path_params["id"], text)
        instant.changed(caller)
        return json_response(wish_json(wish))

    async def remove(request: Request) -> Response:
        caller = caller_of(request)
        wish = await log.remove_wish(caller, request.path_params["id"])
        instant.changed(caller)
        return json_response(wish_json(wish))

    return [
        Route("/burnish/wishes", index, methods=["GET"]),
        Route("/burnish/wishes", create, methods=["POST"]),
        Route("/burnish/wishes/{id}", edit, methods=["PATCH"]),
        Route("/burnish/wishes/{id}", remove, methods=["DELETE"]),
    ]


def wish_json(wish: Wish) -> dict[str, Any]:
    """Return a wish as clients see it."""
    return {"object": "wish", **asdict(wish)}


async def _said(request: Request) -> tuple[str, str]:
    body = validated(WishRequest, await read_json(request, MAX_BODY_BYTES))
    return caller_of(request), body.text
