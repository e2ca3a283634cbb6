"""The rollout that a request carries: in its path, ``/r/<id>/v1/…``, or in its key, ``burnish-rollout-<id>-<proof>``.

Unmodified agents can be given a base URL and a key, and nothing else. IDs can be guessed, so a key has a proof.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from starlette.types import Scope

from burnish.proxy.http.errors import InvalidRequest, Unauthorized
from burnish.proxy.http.headers import CREDENTIALS, secret_in
from burnish.proxy.http.headers import Named as Headers

ROLLOUT = "burnish.rollout"
"""Key of the ASGI scope under which the ``Carried`` of a request is kept, if it has one."""
KEY = b"burnish-rollout-"
PATH = b"/r/"
_ID = rb"ro_[0-9A-HJKMNP-TV-Z]{26}"
_PATH = re.compile(PATH + rb"(" + _ID + rb")(?=/)")
_KEY = re.compile(re.escape(KEY) + b"(" + _ID + rb")-([0-9a-f]{32})\Z")


class Carried(NamedTuple):
    id: str
    model: str | None
    """The name of the version that answers; None: the model that the request names."""
    caller: str
    """Who began it. What its requests name as their user proves nothing."""


class RolloutName(NamedTuple):
    id: str
    proof: str | None = None
    """Of the key; None: the path alone names it."""


def key_of(rollout_id: str, proof: str) -> str:
    return f"{KEY.decode()}{rollout_id}-{proof}"


def is_key(secret: bytes) -> bool:
    """Return whether this has the form of a rollout's key."""
    return secret.startswith(KEY)


def _in_key(secret: bytes) -> RolloutName:
    """Return the rollout that a key names, in a header or after ``Bearer``. Raises Unauthorized."""
    match = _KEY.match(secret)
    if match is None:
        raise Unauthorized("this isn't the key of a rollout: use the api_key that POST /v1/rollouts returned")
    return RolloutName(match[1].decode(), match[2].decode())


def _in_headers(headers: Headers) -> bool:
    """Tell most requests, which have no rollout's key, from the others."""
    for name in CREDENTIALS:  # noqa: SIM110 – any() would call a generator for each name
        if name in headers and KEY in headers[name]:
            return True
    return False


def named_by(scope: Scope, headers: Headers) -> RolloutName | None:
    """Return the rollout that a request names, and leave the path without it. Raises InvalidRequest, Unauthorized."""
    if scope["raw_path"][:3] != PATH and not _in_headers(headers):
        return None
    secrets = [secret_in(name, headers.get(name, b"")) for name in CREDENTIALS]
    keys = {_in_key(secret) for secret in secrets if is_key(secret)}
    ids = {key.id for key in keys}
    if in_path := _PATH.match(scope["raw_path"]):
        if not scope["path"].encode().startswith(in_path[0]):
            raise InvalidRequest("the path of a rollout must not be percent-encoded: /r/<id>/v1/…")
        cut = in_path.end()
        scope["path"], scope["raw_path"] = scope["path"][cut:], scope["raw_path"][cut:]
        ids.add(in_path[1].decode())
    if len(ids) > 1 or len(keys) > 1:
        raise InvalidRequest(f"the request names several rollouts, {' and '.join(sorted(ids))}: send one")
    return keys.pop() if keys else RolloutName(ids.pop()) if ids else None
