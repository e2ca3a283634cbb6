"""Which upstream answers a request, and under which name the model is known there."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from http import HTTPStatus
from typing import Any, Protocol
from urllib.parse import urlsplit

import orjson

from burnish.adapters.errors import UnknownVersion
from burnish.adapters.hosts.base import EMBEDDED_CONTEXT_TOKENS
from burnish.adapters.manifest import BASE_VERSION
from burnish.adapters.route import Balance, Lease, LiveRoute
from burnish.proxy.config import Config
from burnish.proxy.errors import NotFound, Unauthorized, Unavailable, UpstreamUnreachable
from burnish.proxy.http.guard import Guard
from burnish.proxy.http.headers import CREDENTIALS, RawHeaders
from burnish.proxy.http.pool import Pool
from burnish.proxy.surfaces.catalogue import WINDOWS, plain

DEFAULT_MODEL = "default"
"""Always the upstream's own model, whatever it is called there."""
DEFAULT = {"id": DEFAULT_MODEL, "object": "model", "created": 0, "owned_by": "burnish"}
"""How it is listed."""

FOR_A_LIST = (*CREDENTIALS, b"anthropic-version")
"""Those of a caller's headers without which clouds do not list their models."""

# A replica that did not accept a connection gets no request for this long, unless it is the only one left.
DOWN_S = 5.0
# A restarted engine is back within two seconds; longer means that something is wrong.
ENGINE_WAIT_S = 15.0


# llama.cpp streams Responses without members that OpenAI's SDKs insist on, and keeps none to go on from.
EMBEDDED_LACKS = frozenset({"responses"})


@dataclass(frozen=True, slots=True)
class Target:
    """Where one request goes. ``release`` must be called when its last byte is through."""

    url: str
    """Root of the API, no trailing slash; see ``join``."""
    release: Callable[[], None]
    model: str | None
    """What ``model`` must say there; None leaves the request as it is."""
    version: int | None
    """Adapter version (0 = bare); None = not a model that burnish trains."""
    authorization: str | None = None
    """Credentials that burnish holds for this target."""
    keep_caller_authorization: bool = True
    """True: the caller's own Authorization goes first, ours is only the fallback."""
    reuse_connections: bool = True
    fields: tuple[tuple[str, Any], ...] = ()
    """Members that the body must have there."""
    leased: bool = False
    """It is a version that reconciling brings back when it is lost."""
    base_digest: str | None = None
    """Of the base weights that the version is served on."""
    lacks: frozenset[str] = frozenset()
    """Formats that it is asked in chat instead."""


class Upstream(Protocol):
    """Whatever answers completions."""

    @property
    def name(self) -> str:
        """URL or name for the log, without credentials."""
        ...

    async def target(self, model: str | None, headers: RawHeaders) -> Target:
        """Pick the target for a model name (None: the request names none). Raises NotFound, Unavailable, Unauthorized.

        ``headers`` are the caller's, whose key it may take to learn what ``default`` means.
        """
        ...

    def lost(self, target: Target) -> bool:
        """Take note that nothing listens there; True when it is worth asking for a target again."""
        ...

    async def models(self, headers: RawHeaders) -> list[dict[str, Any]]:
        """Return the models that a caller may name, ``default`` first, in the shape of ``GET /v1/models``."""
        ...


class RemoteUpstream:
    """Any OpenAI-compatible server, or equal replicas of one, by URL, with the caller's own credentials or ours."""

    def __init__(self, config: Config, pool: Pool, own_model: str | None = None) -> None:
        self._urls = config.upstreams
        self._pool = pool
        self._balance = Balance()
        self._down_until: dict[str, float] = {}
        self._own_model = own_model or config.model
        self._targets: dict[tuple[str, str | None], Target] = {}
        """By URL and by what ``model`` must say there."""
        key = config.upstream_api_key
        self._authorization = f"Bearer {key.get_secret_value()}" if key else None
        self._guard = Guard(config)

    @property
    def name(self) -> str:
        """The upstream's URLs."""
        return ",".join(self._urls)

    async def target(self, model: str | None, headers: RawHeaders) -> Target:
        """Every model goes there; ``default`` becomes the upstream's own."""
        wants_default = model is not None and plain(model) == DEFAULT_MODEL
        name = await self._default(headers) if wants_default else None
        url = self._balance.pick(self._up())
        target = self._targets.get((url, name))
        if target is None:
            done = partial(self._balance.done, url)
            target = self._targets[url, name] = Target(url, done, name, None, self._authorization)
        return target

    def lost(self, target: Target) -> bool:
        """A server that is not ours is not ours to bring back; but a replica may answer instead."""
        self._down_until[target.url] = time.monotonic() + DOWN_S
        return len(self._urls) > 1

    async def models(self, headers: RawHeaders) -> list[dict[str, Any]]:
        """Ask the upstream, with the caller's key where burnish has none; of replicas the first that answers."""
        return [DEFAULT, *await self._offered(headers)]

    async def _offered(self, headers: RawHeaders) -> list[dict[str, Any]]:
        said = self._listing(headers)
        *others, last = sorted(self._urls, key=lambda url: url not in self._up())
        for url in others:
            try:
                return await self._models(url, said)
            except UpstreamUnreachable:
                continue
        return await self._models(last, said)

    def _listing(self, headers: RawHeaders) -> RawHeaders:
        """Return the headers that the upstream is asked with for its models."""
        if self._authorization:
            return [(b"authorization", self._authorization.encode())]
        given = self._guard.without_key(headers)
        return [(name, value) for name, value in given if name.lower() in FOR_A_LIST]

    async def _models(self, url: str, headers: RawHeaders) -> list[dict[str, Any]]:
        response = await self._pool.send("GET", join(url, "/v1/models"), headers, None)
        with response:
            content = await response.whole()
        if response.status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            raise Unauthorized(
                f"{url} {self._refusal(headers)} (asked for its models, it answered {response.status})"
            )
        try:
            listed = list(orjson.loads(content)["data"])
            return [each for each in listed if isinstance(each["id"], str)]
        except (orjson.JSONDecodeError, KeyError, TypeError) as error:
            raise UpstreamUnreachable(
                f"{url} does not list its models (status {response.status}); set `model` to the name that "
                "default should mean"
            ) from error

    def _refusal(self, headers: RawHeaders) -> str:
        if self._authorization:
            return "refuses burnish's upstream_api_key"
        given = any(name.lower() in CREDENTIALS for name, _ in headers)
        return f"{'refuses the key that' if given else 'wants a key, and none'} came with the request"

    def _up(self) -> tuple[str, ...]:
        """Those that may answer; when none is known to, the one that failed longest ago."""
        if not self._down_until:
            return self._urls
        now = time.monotonic()
        up = tuple(url for url in self._urls if self._down_until.get(url, 0) <= now)
        return up or (min(self._urls, key=self._down_until.__getitem__),)

    async def _default(self, headers: RawHeaders) -> str:
        if self._own_model is None:
            offered = await self._offered(headers)
            if not offered:
                raise NotFound(f"{self.name} offers no model yet", code="model_not_found", param="model")
            self._own_model = str(offered[0]["id"])
        return self._own_model


class LearningUpstream:
    """An engine whose adapter versions burnish swaps: requests for the model get the live version.

    ``elsewhere`` is the same engine as a plain upstream when it is not ours alone: requests for its other models pass
    untouched, and so do those for the base while no version can be had. Without it, only versions are served.
    """

    def __init__(
        self, base_model: str, base_digest: str, route: LiveRoute, elsewhere: RemoteUpstream | None = None
    ) -> None:
        self._base = base_model
        self._base_digest = base_digest
        self._route = route
        self._elsewhere = elsewhere

    @property
    def name(self) -> str:
        """The engine, for the log."""
        return self._elsewhere.name if self._elsewhere else f"embedded:{self._base}"

    async def target(self, model: str | None, headers: RawHeaders) -> Target:
        """``default`` and the base name mean the live version; ``name@v3`` and ``name@base`` mean just that one."""
        await self._route.awake()
        name = DEFAULT_MODEL if model is None else plain(model)
        if name in (DEFAULT_MODEL, self._base):
            return await self._live(headers)
        try:
            return self._leased(self._route.lease_version(self._version(name)))
        except (UnknownVersion, ValueError) as error:
            if self._elsewhere and name == f"{self._base}@base":
                return await self._bare(self._elsewhere, headers)
            if self._elsewhere and not name.startswith(f"{self._base}@"):
                return await self._elsewhere.target(model, headers)
            raise NotFound(
                f"there is no model {model!r} here; use {DEFAULT_MODEL!r} or {self._base!r}, or one of GET /v1/models",
                code="model_not_found",
                param="model",
            ) from error

    def lost(self, target: Target) -> bool:
        """The engine is brought back by reconciling; asking again waits for that."""
        if not target.leased:  # passed through, perhaps after just such a wait
            return self._elsewhere is not None and self._elsewhere.lost(target)
        self._route.lost(target.url)
        return True

    async def models(self, headers: RawHeaders) -> list[dict[str, Any]]:
        """List what the engine offers besides, the base, and what is loaded."""
        others = await self._elsewhere.models(headers) if self._elsewhere else []
        loaded = sorted(self._route.resident())
        served = {
            DEFAULT_MODEL,
            self._base,
            *(endpoint.model for endpoint in self._route.resident().values()),
        }
        versions = (f"{self._base}@{'base' if n == BASE_VERSION else f'v{n}'}" for n in loaded)
        base = {"max_model_len": EMBEDDED_CONTEXT_TOKENS}
        if self._elsewhere:
            base = next((each for each in others if plain(each["id"]) == self._base), {})
        window = {name: base[name] for name in WINDOWS if name in base}
        ours = [{**DEFAULT, "id": name, **window} for name in (DEFAULT_MODEL, self._base, *versions)]
        return [*ours, *(each for each in others if plain(each["id"]) not in served)]

    async def _live(self, headers: RawHeaders) -> Target:
        try:
            await self._route.wait_live(ENGINE_WAIT_S)
        except TimeoutError as error:
            if self._elsewhere:
                return await self._bare(self._elsewhere, headers)
            raise Unavailable(
                "the engine is not running and did not come back; see `burnish doctor`", code="engine_down"
            ) from error
        return self._leased(self._route.lease())

    async def _bare(self, elsewhere: RemoteUpstream, headers: RawHeaders) -> Target:
        """The bare model, which an engine that is not ours serves whether we have asked for it or not."""
        target = await elsewhere.target(DEFAULT_MODEL, headers)
        return replace(target, version=BASE_VERSION, base_digest=self._base_digest)

    def _version(self, model: str) -> int:
        base, _, version = model.rpartition("@")
        if base != self._base or not version:
            raise ValueError(model)
        return BASE_VERSION if version == "base" else int(version.removeprefix("v"))

    def _leased(self, lease: Lease) -> Target:
        endpoint = lease.endpoint
        key = f"Bearer {endpoint.api_key}" if endpoint.api_key else None
        shared = self._elsewhere is not None
        return Target(
            endpoint.url,
            lease.release,
            endpoint.model,
            endpoint.version,
            key,
            base_digest=self._base_digest,
            keep_caller_authorization=shared,
            reuse_connections=shared,
            fields=endpoint.fields,
            leased=True,
            lacks=frozenset() if shared else EMBEDDED_LACKS,
        )


def join(base: str, path_and_query: str) -> str:
    """Append a client's path to an upstream's URL, whose own path stands for the client's ``/v1``.

    ``http://host`` + ``/v1/x`` → ``http://host/v1/x``; ``http://host/v1`` + ``/v1/x`` → the same;
    ``http://host/api/openai`` + ``/v1/x`` → ``http://host/api/openai/x``. Paths outside ``/v1`` go to the root
    of a base that ends in ``/v1``, and below any other.
    """
    base = base.rstrip("/")
    if not urlsplit(base).path:
        return base + path_and_query
    if base.endswith("/v1"):
        return base.removesuffix("/v1") + path_and_query
    return base + path_and_query.removeprefix("/v1")
