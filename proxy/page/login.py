"""Signing in to the page with a key, signing out, and who the caller is."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import StringConstraints
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from burnish.proxy.access import Action, Identity, identity_of, may
from burnish.proxy.http.guard import Guard
from burnish.proxy.http.sign_in import LIFETIME_S, cookie_name
from burnish.proxy.json_http import Body, caller_of, json_response, read_json, validated

MAX_BODY_BYTES = 16 * 1024
MAX_KEY = 4096


class LoginRequest(Body):
    """``POST /burnish/login``."""

    key: Annotated[
        str, StringConstraints(strict=True, strip_whitespace=True, min_length=1, max_length=MAX_KEY)
    ]


def login_routes(guard: Guard) -> list[Route]:
    async def login(request: Request) -> Response:
        asked = validated(LoginRequest, await read_json(request, MAX_BODY_BYTES))
        identity, made = guard.sign_in(asked.key)
        who = _whoami(request, guard, identity._replace(local=identity_of(request.scope).local))
        response = _unkept(who | {"proof": made.proof})
        _set_cookie(request, response, made.cookie, LIFETIME_S)
        return response

    async def logout(request: Request) -> Response:
        response = _unkept({"signed_out": True})
        _set_cookie(request, response, "", 0)
        return response

    async def whoami(request: Request) -> Response:
        return _unkept(_whoami(request, guard, identity_of(request.scope)))

    return [
        Route("/burnish/login", login, methods=["POST"]),
        Route("/burnish/logout", logout, methods=["POST"]),
        Route("/burnish/whoami", whoami, methods=["GET"]),
    ]


def _whoami(request: Request, guard: Guard, identity: Identity) -> dict[str, Any]:
    return {
        "object": "identity",
        "key": identity.key,
        "caller": caller_of(request),
        "local": identity.local,
        "may": [action.name.lower() for action in Action if may(identity, action)],
        "signed_in_until": identity.signed_in_until,
        "keys": guard.keys,
        "needs_key": guard.needs_key,
    }


def _unkept(content: dict[str, Any]) -> Response:
    response = json_response(content)
    response.headers["cache-control"] = "no-store"
    return response


def _set_cookie(request: Request, response: Response, value: str, max_age_s: int) -> None:
    """Set the cookie. Its age is counted by the browser from now on, so clocks may differ."""
    response.set_cookie(
        cookie_name(request.headers.get("host", "")),
        value,
        max_age=max_age_s,
        httponly=True,
        samesite="strict",
        # Behind a reverse proxy with TLS only the browser knows that it used https.
        secure=request.headers.get("origin", "").startswith("https:"),
    )
