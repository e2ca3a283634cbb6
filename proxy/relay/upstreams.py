"""The main upstream and further ones, which answer requests for the models that they claim (``[upstreams.NAME]``)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from burnish.config.config import Config, Local
from burnish.config.model_names import plain
from burnish.config.tables import UpstreamConfig
from burnish.proxy.access.guard import Guard
from burnish.proxy.http.errors import BurnishError, Unauthorized
from burnish.proxy.http.headers import RawHeaders
from burnish.proxy.http.pool import Pool
from burnish.proxy.relay.routing import (
    CHAT_ONLY,
    DEFAULT,
    ENGINE_LACKS,
    LearningUpstream,
    NoList,
    RemoteUpstream,
    Target,
)

LOOK_LIMIT_S = 3.0
"""For a further upstream to list its models. One that is down must not delay the others' longer."""
LOOK_AGAIN_S = 30.0
"""Clients ask for the list, and people for the status, more often than a cloud should be asked."""
NO_CALLER: RawHeaders = []


def pool_of(config: Config) -> Pool:
    """Return the connections to all upstreams."""
    return Pool(
        connect_s=config.connect_timeout_s,
        turn_s=config.queue_timeout_s,
        first_byte_s=config.first_byte_timeout_s,
        idle_s=config.idle_timeout_s,
        max_connections=config.max_connections,
    )


def main_upstream(config: Config, pool: Pool, own_model: str | None = None) -> RemoteUpstream:
    """Return the upstream that ``upstream`` sets. ``own_model``: the base model of an engine that burnish knows."""
    if local := config.local(None):
        return _by_litellm(local, pool, Guard(config), name=config.upstream, model=config.model)
    return RemoteUpstream(
        config.upstream_urls,
        config.upstream_api_key,
        pool,
        Guard(config),
        model=own_model or config.model,
        lacks=ENGINE_LACKS if own_model else frozenset(),
        name=config.upstream if config.upstream_is_ours else None,
    )


def _further(
    table: str, settings: UpstreamConfig, config: Config, pool: Pool, guard: Guard
) -> RemoteUpstream:
    if local := config.local(table):
        return _by_litellm(local, pool, guard, name=settings.url, table=table)
    return RemoteUpstream([settings.url], settings.api_key, pool, guard, table=table)


def _by_litellm(local: Local, pool: Pool, guard: Guard, **more: Any) -> RemoteUpstream:
    return RemoteUpstream([local.url], local.token, pool, guard, lacks=CHAT_ONLY, **more)


@dataclass(slots=True)
class Further:
    """One table ``[upstreams.NAME]``."""

    name: str
    settings: UpstreamConfig
    remote: RemoteUpstream
    _offered: list[dict[str, Any]] = field(default_factory=list)
    _trouble: str | None = None
    _look_at: float = 0.0
    """When it is asked again, on the monotonic clock."""

    async def target(self, model: str, headers: RawHeaders) -> Target:
        """Return the target for a model that it claims; only Ollama knows its default tag."""
        target = await self.remote.target(model, headers)
        return target if model == plain(model) else replace(target, model=plain(model))

    async def models(self) -> list[dict[str, Any]]:
        """Return the models that it answers for, also those that it doesn't list or can't list now."""
        await self._look()
        found = {each["id"]: each for each in self._offered if self.settings.claims(each["id"])}
        for model in self.settings.models:
            if not model.endswith("*"):
                found.setdefault(model, {**DEFAULT, "id": model, "owned_by": self.name})
        return list(found.values())

    async def status(self) -> dict[str, Any]:
        await self._look()
        return {
            "name": self.name,
            "url": self.settings.url,
            "api_key": self.settings.api_key is not None,
            "models": list(self.settings.models),
            "teaches": self.settings.teaches,
            "trouble": self._trouble,
        }

    async def _look(self) -> None:
        """Ask for its models, unless that was done a moment ago. A caller's key may be another upstream's, so it stays
        here.
        """
        if time.monotonic() < self._look_at:
            return
        self._offered, self._trouble, table = [], None, f"[upstreams.{self.name}]"
        try:
            async with asyncio.timeout(LOOK_LIMIT_S):
                self._offered = await self.remote.offered(NO_CALLER)
        except NoList:
            pass  # many don't, and answer all the same
        except TimeoutError:
            self._trouble = f"{table}: {self.settings.url} didn't answer within {LOOK_LIMIT_S:g} s"
        except Unauthorized as error:
            if self.settings.api_key:  # else callers send theirs
                self._trouble = error.message
        except BurnishError as error:
            self._trouble = f"{table}: {error.message}"
        self._look_at = time.monotonic() + LOOK_AGAIN_S


class Upstreams:
    """All of them as one upstream: a request goes to the one that claims its model, else to the main one."""

    def __init__(
        self, main: RemoteUpstream | LearningUpstream, config: Config, pool: Pool, guard: Guard
    ) -> None:
        self._main = main
        self._further = {
            name: Further(name, each, _further(name, each, config, pool, guard))
            for name, each in config.upstreams.items()
        }

    @property
    def name(self) -> str:
        return self._main.name

    def target(self, model: str | None, headers: RawHeaders) -> Coroutine[Any, Any, Target]:
        if self._further and model is not None and (further := self._claiming(model)):
            return further.target(model, headers)
        return self._main.target(model, headers)

    def lost(self, target: Target) -> bool:
        by = self._main if target.table is None else self._further[target.table].remote
        return by.lost(target)

    async def models(self, headers: RawHeaders) -> list[dict[str, Any]]:
        """Return the models that a caller may name, ``default`` first, in the form of ``GET /v1/models``."""
        return [*self.with_ours(await self._main.offered(headers)), *await self.beside()]

    async def lister(self, headers: RawHeaders) -> Target | None:
        return await self._main.lister(headers)

    def with_ours(self, offered: list[dict[str, Any]], *, first_page: bool = True) -> list[dict[str, Any]]:
        return self._unclaimed(self._main.with_ours(offered, first_page=first_page))

    async def beside(self) -> list[dict[str, Any]]:
        """Return the models of the further upstreams."""
        found = await asyncio.gather(*(each.models() for each in self._further.values()))
        return [model for models in found for model in models]

    async def status(self) -> Sequence[dict[str, Any]]:
        """Return what each further upstream answers for, and whether it can."""
        return await asyncio.gather(*(each.status() for each in self._further.values()))

    def _claiming(self, model: str) -> Further | None:
        return next((each for each in self._further.values() if each.settings.claims(model)), None)

    def _unclaimed(self, models: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the models of the main upstream without those for which another one answers."""
        return [each for each in models if not self._claiming(each["id"])]
