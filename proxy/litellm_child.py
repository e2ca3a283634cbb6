"""Serves chat completions of a provider by litellm, on a socket that burnish listens on.

A program of its own: burnish runs this file with the interpreter that has litellm, which may not have burnish. So it
imports nothing of ours, and aiohttp only because litellm needs it.

The first line of stdin is ``ChildSettings``. One line of stdout answers: ``{}`` when it serves, else ``{"missing": …}``
or ``{"refused": …}``, and why. It ends when stdin closes.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import os
import signal
import socket
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import suppress
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, NoReturn, TypedDict

if TYPE_CHECKING:
    from aiohttp import web

CHAT, MODELS = "/v1/chat/completions", "/v1/models"
PARAMETERS = frozenset((
    "messages", "stream", "stream_options", "max_tokens", "max_completion_tokens", "n", "stop", "seed",
    "temperature", "top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty",
    "logit_bias", "logprobs", "top_logprobs", "response_format", "tools", "tool_choice", "parallel_tool_calls",
    "functions", "function_call", "reasoning_effort", "thinking", "verbosity", "modalities", "audio", "prediction",
    "web_search_options", "service_tier", "store", "user", "safety_identifier", "prompt_cache_key",
    "prompt_cache_retention",
))  # fmt: skip
"""Members of a request that go to litellm. It takes others as orders: ``api_base``, say, sends our key anywhere."""
RETRY = ("retry-after", "retry-after-ms")
"""Headers of a provider's error that clients obey."""
BAD_REQUEST, UNAUTHORIZED, NOT_FOUND, SERVER_ERROR = 400, 401, 404, 500


class Route(TypedDict):
    """See ``ProviderRoute`` in ``proxy/cloud.py``."""

    provider: str
    """litellm's name, such as "bedrock"."""
    model: str
    """Name of the only model there; "": the requests name it."""
    names: list[str]
    """Names by which requests ask; a star at the end stands for any ending."""
    api_key: str | None
    api_base: str | None
    token: str
    """Bearer token of its requests. All users of the machine reach the socket."""


class ChildSettings(TypedDict):
    routes: list[Route]
    socket: int
    """Descriptor of the socket, which listens already."""


class RefusedRequest(Exception):
    def __init__(self, status_code: int, words: str, code: str, param: str | None = None) -> None:
        super().__init__(words)
        self.status_code = status_code
        self.code = code
        self.param = param


def main() -> NoReturn:
    # Ctrl-C reaches the whole terminal group, but burnish ends this process when its requests have ended.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = os.dup(1)
    os.dup2(2, 1)  # litellm prints advice
    settings: ChildSettings = json.loads(sys.stdin.buffer.readline())
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        import litellm
    except ImportError as error:
        _end(answers, missing=str(error))
    litellm.suppress_debug_info = True
    for route in settings["routes"]:
        try:
            litellm.get_llm_provider(f"{route['provider']}/{route['model'] or 'any'}")
        except litellm.BadRequestError:
            problem = f"litellm {version('litellm')} knows no provider {route['provider']!r}"
            _end(answers, refused=f"{problem}; https://docs.litellm.ai/docs/providers lists them")
    asyncio.run(_serve(settings, answers))
    raise AssertionError("unreachable: only the lifeline ends this process")


async def _serve(settings: ChildSettings, answers: int) -> None:
    from aiohttp import web

    # burnish limits bodies. A client that leaves cancels its handler, which ends the provider's work.
    app = web.Application(client_max_size=0)
    app.router.add_route("*", "/{path:.*}", LitellmServer(settings["routes"]).answer)
    runner = web.AppRunner(app, handler_cancellation=True, access_log=None)
    await runner.setup()
    await web.SockSite(runner, socket.socket(fileno=settings["socket"])).start()
    _say(answers, {})
    await asyncio.Event().wait()


class LitellmServer:
    def __init__(self, routes: list[Route]) -> None:
        self._routes = [(f"Bearer {route['token']}".encode(), route) for route in routes]

    async def answer(self, request: web.Request) -> web.StreamResponse:
        from aiohttp import web

        try:
            route = self._route(request)
            if request.method == "POST" and request.path == CHAT:
                return await _chat(request, route)
            if request.method == "GET" and request.path == MODELS:
                return web.json_response({"object": "list", "data": _models(route)})
            words = f"litellm serves chat completions only, not {request.method} {request.path}"
            raise RefusedRequest(NOT_FOUND, words, "not_found")
        except Exception as error:  # noqa: BLE001  (litellm raises anything, and each belongs to the client)
            status, envelope = described(error)
            response_headers = getattr(error, "litellm_response_headers", None) or {}
            headers = {name: response_headers[name] for name in RETRY if name in response_headers}
            return web.json_response(envelope, status=status, headers=headers)

    def _route(self, request: web.Request) -> Route:
        authorization = request.headers.get("authorization", "").encode(errors="replace")
        for bearer, route in self._routes:
            if hmac.compare_digest(authorization, bearer):
                return route
        raise RefusedRequest(UNAUTHORIZED, "only burnish may ask here", "invalid_api_key")


def _models(route: Route) -> list[dict[str, Any]]:
    listed = [name for name in route["names"] if not name.endswith("*")]
    return [{"id": name, "object": "model", "created": 0, "owned_by": route["provider"]} for name in listed]


async def _chat(request: web.Request, route: Route) -> web.StreamResponse:
    import litellm
    from aiohttp import web

    body = _body(await request.read())
    answer = await litellm.acompletion(
        model=_model(route, body.pop("model", None)),
        api_key=route["api_key"],
        api_base=route["api_base"],
        max_retries=0,  # clients retry, and obey what the provider says about it
        **_checked(body),
    )
    if not body.get("stream"):
        return web.Response(body=answer.model_dump_json(), content_type="application/json")
    try:
        return await _stream(request, aiter(answer))
    finally:
        await answer.aclose()


def _model(route: Route, request_model: Any) -> str:
    """Return litellm's name for the model of a request. Raises RefusedRequest."""
    provider, model, names = route["provider"], route["model"], route["names"]
    if request_model is None and model:
        return f"{provider}/{model}"
    if not isinstance(request_model, str) or not any(_means(name, request_model) for name in names):
        words = f"there is no model {request_model!r} here, only {', '.join(names)}"
        raise RefusedRequest(NOT_FOUND, words, "model_not_found", "model")
    return f"{provider}/{model or request_model.removeprefix(f'{provider}/')}"


async def _stream(request: web.Request, chunks: AsyncIterator[Any]) -> web.StreamResponse:
    """Send chunks as they come. Raises what the provider says before the first one; later it is an event."""
    from aiohttp import web

    first = await anext(chunks, None)
    response = web.StreamResponse(headers={"content-type": "text/event-stream"})
    await response.prepare(request)
    with suppress(ConnectionError):  # the client left
        async for event in _events(first, chunks):
            await response.write(event)
    return response


async def _events(first: Any, chunks: AsyncIterator[Any]) -> AsyncIterator[bytes]:
    try:
        if first is not None:
            yield _event(first.model_dump_json(exclude_none=True))
        async for chunk in chunks:
            yield _event(chunk.model_dump_json(exclude_none=True))
        yield _event("[DONE]")
    except Exception as error:  # noqa: BLE001  (as above)
        yield _event(json.dumps(described(error)[1]))


def described(error: Exception) -> tuple[int, dict[str, Any]]:
    """Return the status and OpenAI's envelope of an error."""
    status = getattr(error, "status_code", None)
    if not isinstance(status, int) or status < BAD_REQUEST:
        status = SERVER_ERROR
    words = str(error).partition("\nTraceback")[0].strip() or type(error).__name__
    kind = "invalid_request_error" if status < SERVER_ERROR else "upstream_error"
    code = getattr(error, "code", None) or type(error).__name__
    return status, {
        "error": {"message": words, "type": kind, "param": getattr(error, "param", None), "code": str(code)}
    }


def _body(content: bytes) -> dict[str, Any]:
    try:
        body = json.loads(content)
    except ValueError as error:
        raise RefusedRequest(BAD_REQUEST, f"the body isn't JSON: {error}", "invalid_request") from error
    if not isinstance(body, dict) or not isinstance(body.get("messages"), list):
        raise RefusedRequest(
            BAD_REQUEST, "the body must be an object with messages", "invalid_request", "messages"
        )
    return body


def _checked(body: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters of a request. Raises RefusedRequest."""
    params = {name: param for name, param in body.items() if param is not None}
    if extra_names := sorted(params.keys() - PARAMETERS):
        words = f"litellm doesn't take these members of the request: {', '.join(extra_names)}. Leave them out"
        raise RefusedRequest(BAD_REQUEST, words, "unsupported_parameter", extra_names[0])
    return params


def _means(name: str, request_model: str) -> bool:
    return request_model.startswith(name[:-1]) if name.endswith("*") else request_model == name


def _event(content: str) -> bytes:
    return f"data: {content}\n\n".encode()


def _end_with_parent() -> NoReturn:
    while os.read(0, 4096):
        continue
    os._exit(0)  # there is nothing to save


def _end(answers: int, **why: str) -> NoReturn:
    _say(answers, why)
    os._exit(1)


def _say(answers: int, line: dict[str, str]) -> None:
    os.write(answers, json.dumps(line).encode() + b"\n")


if __name__ == "__main__":
    main()
