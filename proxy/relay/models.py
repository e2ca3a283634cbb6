"""``GET /v1/models``: the main upstream's own answer. Its first page also has ``default``, the versions, and the models
of further upstreams.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs

import orjson
from starlette.types import Scope, Send

from burnish.proxy.http.headers import encoding_of, named_headers
from burnish.proxy.http.origin import ConnectFailed, UpstreamResponse
from burnish.proxy.relay.answers import WholeAnswer
from burnish.proxy.relay.client import Client, stream
from burnish.proxy.relay.flight import Ending
from burnish.proxy.relay.outbound import Outbound
from burnish.proxy.relay.routing import MAX_TRIES
from burnish.proxy.relay.upstreams import Upstreams
from burnish.proxy.surfaces import Messages
from burnish.proxy.surfaces.catalogue import ANTHROPIC, is_anthropics, listed, with_models
from burnish.proxy.surfaces.lenient import Json, Undecodable, as_text, decode, error_in, object_in, objects

PATH = "/v1/models"
FURTHER = frozenset({"after_id", "before_id", "after", "before", "cursor", "page_token", "offset"})
"""Parameters of queries for a page that isn't the first."""


@dataclass(frozen=True, slots=True)
class ModelList:
    _outbound: Outbound
    _upstreams: Upstreams

    async def __call__(self, scope: Scope, send: Send, client: Client, ending: Ending) -> None:
        """Answer a request for the list. Errors before the first byte are raised as BurnishError."""
        for tries_left in reversed(range(MAX_TRIES)):
            target = await self._upstreams.lister(scope["headers"])
            if target is None:
                models = [*self._upstreams.with_ours([]), *await self._upstreams.beside()]
                await stream(_listed(models, scope), scope, send, client, ending)
                return
            try:
                with await self._outbound.send(scope, target, None, scope["raw_path"]) as response:
                    await stream(await self._extended(response, scope), scope, send, client, ending)
                return
            except ConnectFailed:
                if self._upstreams.lost(target) and tries_left:
                    continue
                beside = await self._upstreams.beside()
                if not beside:
                    raise
                await stream(_listed(beside, scope), scope, send, client, ending)
                return
            finally:
                target.release()

    async def _extended(self, response: UpstreamResponse, scope: Scope) -> UpstreamResponse:
        content = await response.whole()
        page, anthropic = _page(response, content), _is_anthropics(scope)
        if response.status == HTTPStatus.OK and _lists(page):
            begins = FURTHER.isdisjoint(parse_qs(scope["query_string"].decode("latin-1")))
            foreign = anthropic and not is_anthropics(page)
            found = self._upstreams.with_ours(page["data"], first_page=begins or foreign)
            if begins or foreign:
                found = [*found, *await self._upstreams.beside()]
            page = listed(found, anthropic=True) if foreign else with_models(page, found, anthropic=anthropic)
            return WholeAnswer(response, response.status, orjson.dumps(page))
        failed = response.status >= HTTPStatus.BAD_REQUEST
        if failed and anthropic and page.get("type") != "error":
            words = error_in(page) if page else as_text(content)
            words = words or f"the upstream answered with {response.status}"
            error = Messages().error_of(response.status, words)
            return WholeAnswer(response, response.status, orjson.dumps(error))
        answer = WholeAnswer(response, response.status, content)
        answer.headers = response.headers  # as it came
        return answer


def _listed(models: list[dict[str, Any]], scope: Scope) -> WholeAnswer:
    page = listed(models, anthropic=_is_anthropics(scope))
    return WholeAnswer(None, HTTPStatus.OK, orjson.dumps(page))


def _is_anthropics(scope: Scope) -> bool:
    return ANTHROPIC.encode() in named_headers(scope)


def _page(response: UpstreamResponse, content: bytes) -> Json:
    """Return a list, or an error; {} if it can't be read."""
    with suppress(Undecodable):
        return object_in(decode(content, encoding_of(response.headers))) or {}
    return {}


def _lists(page: Json) -> bool:
    models = page.get("data")
    ids = [model.get("id") for model in objects(models)]
    return isinstance(models, list) and len(ids) == len(models) and all(isinstance(name, str) for name in ids)
