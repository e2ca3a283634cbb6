"""The rollout that a request carries: in its path, ``/r/<id>/v1/…``, or as its key, ``burnish-rollout-<id>``.

Unmodified agents can be given a base URL and a key, and nothing else.
"""

from __future__ import annotations

import re
from typing import NamedTuple, Protocol

from starlette.types import Scope

from burnish.proxy.errors import InvalidRequest
from burnish.proxy.http.headers import CREDENTIALS, secret_in
from burnish.proxy.http.headers import Named as Headers

ROLLOUT = "burnish.rollout"
"""Key of the ASGI scope under which the ``Carried`` of a request is kept, if it has one."""
KEY = b"burnish-rollout-"
_ID = rb"ro_[0-9A-HJKMNP-TV-Z]{26}"
_PATH = re.compile(rb"/r/(" + _ID + rb")(?=/)")
_KEY = re.compile(re.escape(KEY) + b"(" + _ID + rb")\Z")


class Carried(NamedTuple):
    """What a request must know of its rollout."""

    id: str
    model: str | None
    """The name of the version that answers; None: the model that the request names."""


class Carriers(Protocol):
    async def carried(self, rollout_id: str) -> Carried:
        """Return an open rollout. Raises NotFound, and Conflict if it has ended."""


def key_of(rollout_id: str) -> str:
    return KEY.decode() + rollout_id


def in_key(secret: bytes) -> str | None:
    """Return the rollout that a key names, in a header or after ``Bearer``."""
    found = _KEY.match(secret)
    return found[1].decode() if found else None


class Named(NamedTuple):
    """How a request names its rollout."""

    id: str
    by_key: bool


def named_by(scope: Scope, headers: Headers) -> Named | None:
    """Return the rollout that a request names, and leave the path without it. Raises InvalidRequest."""
    keys = {found for name in CREDENTIALS if (found := in_key(secret_in(name, headers.get(name, b""))))}
    named = keys.copy()
    if in_path := _PATH.match(scope["raw_path"]):
        if not scope["path"].encode().startswith(in_path[0]):
            raise InvalidRequest("the path of a rollout must not be percent-encoded: /r/<id>/v1/…")
        cut = in_path.end()
        scope["path"], scope["raw_path"] = scope["path"][cut:], scope["raw_path"][cut:]
        named.add(in_path[1].decode())
    if len(named) > 1:
        raise InvalidRequest(f"the request names several rollouts, {' and '.join(sorted(named))}: send one")
    return Named(named.pop(), bool(keys)) if named else None
