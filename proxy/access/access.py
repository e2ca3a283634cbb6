"""Who may do what. Each request has an identity, each route an action, and ``may`` decides.

Names that clients send (``x-burnish-user``, ``rater``) are only names: an identity comes from a key. A name is proved
if the holder of the admin_key, or a trusted proxy, says it.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum
from typing import Literal, NamedTuple

from starlette.types import Scope

from burnish.proxy.http.errors import Forbidden

Key = Literal["api_key", "admin_key", "rollout", "proxy", "none"]
"""proxy: a trusted proxy has set the user's name, and none of the keys but the api_key came with it."""


class Action(Enum):
    OPEN = "load the page, and sign in to it"
    ASK = "ask the model"
    RATE = "rate, and take own ratings back"
    AS_NAMED = "read what the user asked whose name came with the request, and speak for them"
    WATCH = "see counts, versions and health"
    WEIGH = "rate with a weight over 1, or as a judge or an environment"
    READ = "read what users wrote and the model answered"
    STEER = "train, pause, promote, roll back, change instructions"
    ERASE = "erase a user"
    TRANSFER = "import and export versions inside the data directory"
    TRANSFER_ANYWHERE = "import from and export to any path"
    MANAGE_ENGINE = "create, load and delete models of the engine"


FOR_EVERYBODY = (Action.ASK, Action.RATE, Action.WATCH)
WATCHED = frozenset({"/healthz", "/metrics", "/burnish/status"})
WITHOUT_KEY = frozenset({"/burnish/login", "/burnish/logout", "/burnish/whoami", "/burnish/openapi.json"})
"""Paths of the page that need no key."""


class Identity(NamedTuple):
    key: Key | None
    """The key that came with it; None: burnish has no keys."""
    administers: bool
    local: bool = False
    """True if it came from this machine."""
    admitted: bool = True
    """False: burnish needs a key, and none came."""
    signed_in_until: int | None = None
    """When the page's sign-in ends, in seconds since the epoch, UTC. None: the key itself came, or none."""


EVERYBODY = Identity(None, administers=True)
"""Whoever asks while burnish has no keys."""
NOBODY = Identity("none", administers=False)
STRANGER = NOBODY._replace(admitted=False)
IN_ROLLOUT = Identity("rollout", administers=False)
"""An agent with the key of a rollout."""
IDENTITY = "burnish.identity"
"""Key of the ASGI scope under which the identity is kept."""


def identity_of(scope: Scope) -> Identity:
    identity: Identity = scope.get(IDENTITY, NOBODY)
    return identity


def may(identity: Identity, action: Action) -> bool:
    if action is Action.OPEN or not identity.admitted:
        return action is Action.OPEN
    if identity.key == "rollout":  # an agent must not be able to reward itself
        return action is Action.ASK
    if action in FOR_EVERYBODY:
        return True
    if action is Action.AS_NAMED:
        return identity.administers or identity.key == "proxy"
    return identity.administers and (identity.local or action is not Action.TRANSFER_ANYWHERE)


def demand(identity: Identity, action: Action, what: str, *, param: str | None = None) -> None:
    """Raise Forbidden unless an identity may do something; ``what`` names it to the user."""
    if may(identity, action):
        return
    if identity.key == "rollout":
        raise Forbidden(
            f"{what} can't be sent in a rollout, which only asks the model: send it without the rollout's key, to an "
            "address without /r/…",
            code="in_rollout",
            param=param,
        )
    if identity.administers:
        raise Forbidden(f"{what} is only for requests from the machine where burnish runs", param=param)
    raise Forbidden(
        f"{what} needs burnish's admin_key: set admin_key (BURNISH_ADMIN_KEY) where burnish runs, and send it as "
        "Authorization: Bearer <key>, or in x-burnish-key. Commands send the one in their environment",
        code="admin_key_needed",
        param=param,
    )


CommentKeys = frozenset[Key | None]
"""Keys with which comments came; None: before there were any."""


def comment_keys(identity: Identity) -> CommentKeys:
    """Return with which keys a comment must have come to be an instruction for a request."""
    trusted_keys: CommentKeys = (
        frozenset((None, "admin_key", "proxy")) if may(identity, Action.AS_NAMED) else frozenset()
    )
    return trusted_keys | {identity.key}


def may_steer_in_chat(identity: Identity, user: str, owners: Collection[str]) -> bool:
    """Decide whether ``/rl train`` and the like count: for owners, on a request that may steer.

    Without a list of owners, the admin_key itself is enough.
    """
    if not may(identity, Action.STEER):
        return False
    return user in owners or (not owners and identity.key == "admin_key")


def action_at(method: str, path: str) -> Action:
    """Return what a request to one of our own routes does; unknown ones are not for everybody."""
    if path in WITHOUT_KEY:
        return Action.OPEN
    if path in WATCHED:
        return Action.WATCH
    if path == "/burnish/command" or path.startswith("/v1/feedback/"):
        return Action.RATE
    if path in ("/v1/feedback", "/burnish/duels") and method == "POST":
        return Action.RATE
    if path.startswith("/v1/rollouts") and method == "POST":
        return Action.WEIGH
    if path.startswith("/burnish/users/") and method == "DELETE":
        return Action.ERASE
    if path.endswith("/export") or (path == "/burnish/adapters" and method == "POST"):
        return Action.TRANSFER
    return Action.READ if method in ("GET", "HEAD") else Action.STEER
