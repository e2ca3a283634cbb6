"""Picks the upstream of a request, and the name of the model there."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

import orjson
from pydantic import SecretStr

from burnish.adapters.errors import UnknownVersion
from burnish.adapters.manifest import BASE_VERSION
from burnish.adapters.route import Balance, Lease, LiveRoute
from burnish.config.model_names import DEFAULT_MODEL, plain
from burnish.proxy.access.guard import Guard
from burnish.proxy.http.errors import NotFound, Unauthorized, Unavailable, UpstreamUnreachable
from burnish.proxy.http.headers import CREDENTIALS, RawHeaders
from burnish.proxy.http.pool import Pool
from burnish.proxy.surfaces.catalogue import WINDOWS

DEFAULT = {"id": DEFAULT_MODEL, "object": "model", "created": 0, "owned_by": "burnish"}
"""Its entry in the list of models."""

FOR_A_LIST = (*CREDENTIALS, b"anthropic-version")
"""Headers of a caller that clouds need before they list their models."""

KEY_HEADERS = {"api.anthropic.com": b"x-api-key", "generativelanguage.googleapis.com": b"x-goog-api-key"}
"""They take Authorization for a login, and refuse a key there."""
ANTHROPICS = (b"anthropic-version", b"2023-06-01")
"""Without it, Anthropic refuses every request."""

# How many targets one request may find gone before it fails.
MAX_TRIES = 3
# A replica that accepted no connection gets no request for this long, unless all are down.
DOWN_S = 5.0
# A restarted engine is back within two seconds. Much longer means that something is wrong.
ENGINE_WAIT_S = 15.0
# After such a wait. A large model takes minutes to start, but nobody should miss the moment by much.
RETRY_AFTER_S = 5
THREADS = "threads"
"""Histories that Anthropic's servers hold."""
# No engine holds threads: one that speaks Messages would answer the new turn alone.
ENGINE_LACKS = frozenset({THREADS})
# llama.cpp streams Responses without members that OpenAI's SDKs insist on, and stores none to continue.
EMBEDDED_LACKS = ENGINE_LACKS | {"responses", "ollama_chat", "ollama_generate", "gemini"}
CHAT_ONLY = EMBEDDED_LACKS | {"messages"}


@dataclass(frozen=True, slots=True)
class Target:
    """Destination of one request. Call ``release`` after its last byte."""

    upstream: str
    """Its upstream's URLs or name for the log, without credentials."""
    url: str
    """Root of the API, no trailing slash; see ``placed``."""
    release: Callable[[], None]
    model: str | None
    """Name of the model there; None leaves the request as it is."""
    version: int | None
    """Adapter version (0 = base model); None: a model that burnish doesn't train."""
    authorization: str | None = None
    """Value of the header with burnish's own key for this target."""
    keep_caller_authorization: bool = True
    """True: burnish's own key is only sent if the caller has none."""
    reuse_connections: bool = True
    fields: tuple[tuple[str, Any], ...] = ()
    """Further members of the body, e.g. for the adapter."""
    without_adapter: tuple[tuple[str, Any], ...] | None = None
    """Instead of ``fields``: members with which it answers as the base model."""
    leased: bool = False
    """True: a version, which reconciling restores when it is lost."""
    base_digest: str | None = None
    """Digest of the base weights under the version."""
    embedded: bool = False
    """The embedded engine, which has the usual paths only, and whose requests burnish judges."""
    lacks: frozenset[str] = frozenset()
    """Formats that must be translated into chat for it; THREADS: requests that continue one."""
    table: str | None = None
    """The name in ``[upstreams.NAME]`` of a further upstream; None: the main one."""


class NoList(UpstreamUnreachable):
    """The upstream answers, but doesn't list its models."""


class RemoteUpstream:
    """Any OpenAI-compatible server, or equal replicas of one, with the caller's credentials or burnish's own."""

    def __init__(
        self,
        urls: Sequence[str],
        key: SecretStr | None,
        pool: Pool,
        guard: Guard,
        *,
        model: str | None = None,
        lacks: frozenset[str] = frozenset(),
        table: str | None = None,
        name: str | None = None,
    ) -> None:
        """``key``: burnish's own. ``model``: what ``default`` means. ``lacks`` and ``table``: as of a ``Target``.

        ``name``: of a server that burnish runs itself. It gets no caller's key.
        """
        self._urls = tuple(urls)
        self._pool = pool
        self._guard = guard
        self._balance = Balance()
        self._down_until: dict[str, float] = {}
        self._own_model = model
        self._lacks = lacks
        self._table = table
        self.is_ours = name is not None
        self.name = name or ",".join(urls)
        self._targets: dict[tuple[str, str | None], Target] = {}
        """By URL and by name of the model there."""
        self._key = key.get_secret_value() if key else None

    async def target(self, model: str | None, headers: RawHeaders) -> Target:
        """Send every model there; ``default`` becomes the upstream's own, found with the caller's key in ``headers``.

        Raises NotFound, Unavailable, Unauthorized.
        """
        wants_default = model is not None and plain(model) == DEFAULT_MODEL
        name = await self._default(headers) if wants_default else None
        url = self._balance.pick(self._up())
        target = self._targets.get((url, name))
        if target is None:
            done = partial(self._balance.done, url)
            authorization = f"Bearer {self._key}" if self._key else None
            target = self._targets[url, name] = Target(
                self.name,
                url,
                done,
                name,
                None,
                authorization,
                # A caller's key is meant for the main upstream, which may be another provider.
                keep_caller_authorization=not (self.is_ours or (self._table and self._key)),
                lacks=self._lacks,
                table=self._table,
            )
        return target

    def lost(self, target: Target) -> bool:
        """Take the server out for a while; return True if another target may be found, which is a replica."""
        self._down_until[target.url] = time.monotonic() + DOWN_S
        return len(self._urls) > 1

    async def lister(self, headers: RawHeaders) -> Target | None:
        """Pick the target that lists its models itself."""
        return await self.target(None, headers)

    def with_ours(self, offered: list[dict[str, Any]], *, first_page: bool = True) -> list[dict[str, Any]]:
        return [DEFAULT, *offered] if first_page else offered

    async def offered(self, headers: RawHeaders) -> list[dict[str, Any]]:
        """Return the upstream's own models, in the form of ``GET /v1/models``.

        It is asked with the caller's key if burnish has none; the first replica that answers counts.
        """
        own = self._headers_for_list(headers)
        *others, last = sorted(self._urls, key=lambda url: url not in self._up())
        for url in others:
            try:
                return await self._models(url, own)
            except UpstreamUnreachable:
                continue
        return await self._models(last, own)

    def _headers_for_list(self, headers: RawHeaders) -> RawHeaders:
        if self._key:
            return with_key(self._urls[0], self._key)
        given = self._guard.without_key(headers)
        return [(name, value) for name, value in given if name in FOR_A_LIST]

    async def _models(self, url: str, headers: RawHeaders) -> list[dict[str, Any]]:
        address, path = placed(url, "/v1/models")
        response = await self._pool.send("GET", address, headers, None, path=path)
        with response:
            content = await response.whole()
        if response.status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            raise Unauthorized(f"{url} {self._refusal(headers)} (GET /v1/models answered {response.status})")
        try:
            listed = list(orjson.loads(content)["data"])
            return [each for each in listed if isinstance(each["id"], str)]
        except (orjson.JSONDecodeError, KeyError, TypeError) as error:
            raise NoList(
                f"{url} does not list its models (status {response.status}). Set `model` in the configuration to the "
                "model that `default` should mean"
            ) from error

    def _refusal(self, headers: RawHeaders) -> str:
        if self._key:
            setting = f"api_key in [upstreams.{self._table}]" if self._table else "upstream_api_key"
            return f"refuses burnish's {setting}"
        given = any(name in CREDENTIALS for name, _ in headers)
        return f"{'refuses the key that' if given else 'needs a key, and none'} came with the request"

    def _up(self) -> tuple[str, ...]:
        """Return the URLs that may answer; if all are down, the one that failed longest ago."""
        if not self._down_until:
            return self._urls
        now = time.monotonic()
        up = tuple(url for url in self._urls if self._down_until.get(url, 0) <= now)
        return up or (min(self._urls, key=self._down_until.__getitem__),)

    async def _default(self, headers: RawHeaders) -> str:
        if self._own_model is None:
            offered = await self.offered(headers)
            if not offered:
                raise NotFound(f"{self.name} offers no model yet", code="model_not_found", param="model")
            self._own_model = str(offered[0]["id"])
        return self._own_model


class LearningUpstream:
    """An engine whose versions burnish swaps: requests for its model get the live version.

    ``context_tokens``: of a request, if burnish knows more than the engine's list of models.
    ``plain_upstream`` is the same engine as an upstream, if burnish doesn't own it. It answers requests
    for other models, and those for the base model while no version is served. Without it, only versions are served.
    """

    def __init__(
        self,
        base_model: str,
        base_digest: str,
        context_tokens: int | None,
        route: LiveRoute,
        plain_upstream: RemoteUpstream | None = None,
    ) -> None:
        self._base = base_model
        self._base_digest = base_digest
        self._window = {"max_model_len": context_tokens} if context_tokens else {}
        self._route = route
        self._plain = plain_upstream

    @property
    def name(self) -> str:
        return self._plain.name if self._plain else f"embedded:{self._base}"

    async def target(self, model: str | None, headers: RawHeaders) -> Target:
        """Pick the live version for ``default`` and the base name; ``name@v3`` and ``name@base`` name one version."""
        await self._route.awake()
        name = DEFAULT_MODEL if model is None else plain(model)
        if name in (DEFAULT_MODEL, self._base):
            return await self._live(headers)
        try:
            return self._leased(await self._named(name))
        except (UnknownVersion, ValueError) as error:
            if name == f"{self._base}@base" and (base := await self._base_beside_live(headers)):
                return base
            if self._plain and not name.startswith(f"{self._base}@"):
                return await self._plain.target(model, headers)
            if isinstance(error, UnknownVersion) and self._route.in_flight(self._version(name)):
                raise _down(f"the engine lost {name}, which is in use: try again in a moment") from error
            raise NotFound(
                f"there is no model {model!r}. Use {DEFAULT_MODEL!r} or {self._base!r}, or one of GET /v1/models",
                code="model_not_found",
                param="model",
            ) from error

    def lost(self, target: Target) -> bool:
        """Report a lost version to reconciling; the next ``target`` waits until it is back."""
        if not target.leased:  # it went to the plain upstream
            return self._plain is not None and self._plain.lost(target)
        self._route.lost(target.url)
        return True

    async def offered(self, headers: RawHeaders) -> list[dict[str, Any]]:
        return await self._plain.offered(headers) if self._plain else []

    async def lister(self, headers: RawHeaders) -> Target | None:
        return await self._plain.lister(headers) if self._plain else None

    def with_ours(self, offered: list[dict[str, Any]], *, first_page: bool = True) -> list[dict[str, Any]]:
        """List ``default``, the base model, the loaded versions, and the engine's other models."""
        loaded = sorted({BASE_VERSION, *self._route.resident()})
        models = (endpoint.model for endpoint in self._route.resident().values())
        served = {DEFAULT_MODEL, self._base, *models}
        versions = (f"{self._base}@{'base' if n == BASE_VERSION else f'v{n}'}" for n in loaded)
        base = self._window or next((each for each in offered if plain(each["id"]) == self._base), {})
        window = {name: base[name] for name in WINDOWS if name in base}
        ours = [{**DEFAULT, "id": name, **window} for name in (DEFAULT_MODEL, self._base, *versions)]
        others = [each for each in offered if plain(each["id"]) not in served]
        return [*ours, *others] if first_page else others

    async def _live(self, headers: RawHeaders) -> Target:
        try:
            await self._route.wait_live(ENGINE_WAIT_S)
        except TimeoutError as error:
            if self._plain and not self._plain.is_ours:
                return await self._bare(self._plain, headers)
            raise _down(
                "the engine is starting again: try again in a moment. `burnish status` shows how far it is"
                if self._plain
                else "the engine stopped and did not come back. Run `burnish doctor` to see why"
            ) from error
        return self._leased(self._route.lease())

    async def _named(self, name: str) -> Lease:
        """Lease the version that ``name@v3`` means. Raises ValueError, UnknownVersion."""
        version = self._version(name)
        if self._route.live is None:  # the engine is starting again, and brings back what it served
            with suppress(TimeoutError):
                await self._route.wait_live(ENGINE_WAIT_S)
        return self._route.lease_version(version)

    async def _base_beside_live(self, headers: RawHeaders) -> Target | None:
        """Pick the base model while a version is live: beside it, or in its process; None if the engine can't."""
        if self._plain:
            return await self._bare(self._plain, headers)
        live = await self._live(headers)
        if live.without_adapter is None:
            live.release()
            return None
        return replace(live, model=self._base, version=BASE_VERSION, fields=live.without_adapter)

    async def _bare(self, plain_upstream: RemoteUpstream, headers: RawHeaders) -> Target:
        """Pick the base model, which an engine that isn't ours serves in any case."""
        target = await plain_upstream.target(DEFAULT_MODEL, headers)
        return replace(target, version=BASE_VERSION, base_digest=self._base_digest)

    def _version(self, model: str) -> int:
        base, _, version = model.rpartition("@")
        if base != self._base or not version:
            raise ValueError(model)
        return BASE_VERSION if version == "base" else int(version.removeprefix("v"))

    def _leased(self, lease: Lease) -> Target:
        endpoint = lease.endpoint
        key = f"Bearer {endpoint.api_key}" if endpoint.api_key else None
        shared = self._plain is not None
        keeps = self._plain is not None and not self._plain.is_ours
        return Target(
            self.name,
            endpoint.url,
            lease.release,
            endpoint.model,
            endpoint.version,
            key,
            base_digest=self._base_digest,
            keep_caller_authorization=keeps,
            reuse_connections=shared,
            fields=endpoint.fields,
            without_adapter=endpoint.without_adapter,
            leased=True,
            embedded=not shared,
            lacks=ENGINE_LACKS if shared else EMBEDDED_LACKS,
        )


def with_key(url: str, key: str) -> RawHeaders:
    """Return the headers of a request to an upstream for its list of models, with burnish's key for it."""
    name = KEY_HEADERS.get(urlsplit(url).hostname or "")
    return [(name, key.encode()), ANTHROPICS] if name else [(b"authorization", f"Bearer {key}".encode())]


def placed(base: str, path_and_query: str) -> tuple[str, str]:
    """Return the server at the URL of an upstream, and the path of a request there. Its own path replaces ``/v1``.

    ``http://host`` and ``/v1/x`` → ``http://host`` and ``/v1/x``; ``http://host/v1`` and ``/v1/x`` → the same;
    ``http://host/api/openai`` and ``/v1/x`` → ``http://host`` and ``/api/openai/x``. Paths outside ``/v1`` go to the
    root of a base that ends in ``/v1``, and below any other.
    """
    scheme, _, rest = base.rstrip("/").partition("://")
    authority, slash, below = rest.partition("/")
    address = f"{scheme}://{authority}"
    if not below:
        return address, path_and_query
    if (slash + below).endswith("/v1"):
        return address, (slash + below).removesuffix("/v1") + path_and_query
    inner = path_and_query.removeprefix("/v1") if path_and_query.startswith("/v1/") else path_and_query
    return address, slash + below + inner


def _down(words: str) -> Unavailable:
    down = Unavailable(words, code="engine_down")
    down.headers.append((b"retry-after", b"%d" % RETRY_AFTER_S))
    return down
