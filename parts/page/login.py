"""Signing in to the page with a key, signing out, and who the caller is."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated, Literal

from pydantic import StringConstraints
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from burnish.proxy.access.access import Action, Identity, Key, identity_of, may
from burnish.proxy.access.guard import Guard
from burnish.proxy.access.sign_in import LIFETIME_S, cookie_name
from burnish.proxy.described import described, flat
from burnish.proxy.json_http import Body, caller_of, json_response, read_json, validated

MAX_BODY_BYTES = 16 * 1024
MAX_KEY = 4096


class LoginRequest(Body):
    """``POST /burnish/login``."""

    key: Annotated[
        str, StringConstraints(strict=True, strip_whitespace=True, min_length=1, max_length=MAX_KEY)
    ]


@dataclass(frozen=True, slots=True)
class WhoAmI:
    object: Literal["identity"]
    key: Key | None
    """The key that came; "none" if none of those that are set; None if none is set."""
    caller: str
    local: bool
    """Whether the request came from this machine."""
    may: list[str]
    signed_in_until: int | None
    keys: list[str]
    """Those that are set."""
    needs_key: bool
    """Whether nothing goes without a key."""


def login_routes(guard: Guard) -> list[Route]:
    @described(
        "sign in to [the page](page.md#keys): sets a cookie, and answers with the `proof` that must come with "
        "it in `x-burnish-page`",
        flat("SignedIn", WhoAmI, proof=str),
        body=LoginRequest,
    )
    async def login(request: Request) -> Response:
        asked = validated(LoginRequest, await read_json(request, MAX_BODY_BYTES))
        identity, made = guard.sign_in(asked.key)
        who = _whoami(request, guard, identity._replace(local=identity_of(request.scope).local))
        response = json_response(asdict(who) | {"proof": made.proof})
        _set_cookie(request, response, made.cookie, LIFETIME_S)
        return response

    @described("take the cookie away", flat("SignedOut", signed_out=Literal[True]))
    async def logout(request: Request) -> Response:
        response = json_response({"signed_out": True})
        _set_cookie(request, response, "", 0)
        return response

    @described("which key came with the request, what its holder `may` do, and which keys are set", WhoAmI)
    async def whoami(request: Request) -> Response:
        return json_response(asdict(_whoami(request, guard, identity_of(request.scope))))

    return [
        Route("/burnish/login", login, methods=["POST"]),
        Route("/burnish/logout", logout, methods=["POST"]),
        Route("/burnish/whoami", whoami, methods=["GET"]),
    ]


def _whoami(request: Request, guard: Guard, identity: Identity) -> WhoAmI:
    return WhoAmI(
        "identity",
        key=identity.key,
        caller=caller_of(request),
        local=identity.local,
        may=[action.name.lower() for action in Action if may(identity, action)],
        signed_in_until=identity.signed_in_until,
        keys=guard.keys,
        needs_key=guard.needs_key,
    )


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
