"""Ollama's protocol in front of real llama-servers, as Ollama itself runs them: one process a model.

Ollama is on no package registry, so this stands in for it where it is not installed. Its answers are taken from
Ollama's source (0.33, and server/create.go of 0.34.1 and later), the replies come from the real engine.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import orjson
from aiohttp import web

from tests.support.llama_server import LlamaServer

WITH_ADAPTERS = "0.33.0"
WITHOUT_ADAPTERS = "0.34.4"
"""Releases that differ in what they take."""

# What a model made from a file gets from the request alone.
SENT = ("template", "system", "renderer", "parser", "parameters", "messages", "license")


def full(name: str) -> str:
    return name if ":" in name else f"{name}:latest"


@dataclass
class Model:
    weights: str
    """Digest of its file."""
    adapter: str | None = None
    projector: str | None = None
    template: str = ""
    """Ollama's own; ``{{ .Prompt }}`` in it stands for the last message."""
    system: str = ""
    renderer: str = ""
    parser: str = ""
    parameters: dict[str, Any] = field(default_factory=dict)
    messages: list[dict[str, str]] = field(default_factory=list)
    license: str = ""

    @property
    def blobs(self) -> set[str]:
        return {digest for digest in (self.weights, self.adapter, self.projector) if digest}


@dataclass
class OllamaDouble:
    """The running double; ``faults`` and ``release`` may be changed at any time."""

    folder: Path
    models: dict[str, Model]
    """By full name."""
    engine: list[str]
    """Arguments of every llama-server."""
    base: str
    release: str = WITH_ADAPTERS
    faults: set[str] = field(default_factory=set)
    """Of "ndjson", "error_in_stream", "damaged_upload", "no_adapters", "forgets" (the new model), "forgets_<member>"
    (of a model from a file), "no_render", "renders_otherwise" (but the base), "dies_in_upload", "dies_in_create",
    "hangs_in_upload", "deaf" (adapters and merged weights change nothing), "no_logprobs"."""
    dead: bool = False
    """It ended; every connection is cut until this is taken back."""
    api_key: str | None = None
    url: str = ""
    requests: list[tuple[str, str]] = field(default_factory=list)
    running: dict[str, LlamaServer] = field(default_factory=dict)
    _starting: asyncio.Lock = field(default_factory=asyncio.Lock)

    def blob(self, digest: str) -> Path:
        return self.folder / digest.replace(":", "-")

    def blobs(self) -> set[str]:
        return {path.name.replace("-", ":") for path in self.folder.glob("sha256-*")}

    async def _answer(self, request: web.Request) -> web.StreamResponse:  # noqa: PLR0912 – a table of routes
        if self.dead:
            return self._cut(request)
        self.requests.append((request.method, request.path))
        if self.api_key and request.headers.get("authorization") != f"Bearer {self.api_key}":
            return web.json_response({"error": "unauthorized"}, status=401)
        if request.path.startswith("/api/blobs/"):
            return await self._blobs(request)
        if request.path == "/api/version":
            return web.json_response({"version": self.release})
        if request.path.startswith("/v1/"):
            return await self._relay(request)
        body = orjson.loads(await request.read() or b"{}")
        match request.method, request.path:
            case "GET", "/api/tags":
                return web.json_response({"models": [{"name": name, "model": name} for name in self.models]})
            case "POST", "/api/create":
                return self._create(request, body)
        name = full(body.get("model", ""))
        if name not in self.models:
            return web.json_response({"error": f"model '{name}' not found"}, status=404)
        match request.method, request.path:
            case "POST", "/api/show":
                return web.json_response(self._shown(self.models[name]))
            case "POST", "/api/chat":
                return await self._render(name, body)
            case "POST", "/api/generate":
                if "prompt" in body:
                    return await self._continue(name, body)
                assert body["keep_alive"] == 0
                await self._stop(name)
                return web.json_response({"model": name, "done": True, "done_reason": "unload"})
            case "DELETE", "/api/delete":
                await self._stop(name)
                self._remove_blobs(self.models.pop(name).blobs)
                return web.Response()
        return web.Response(status=404, text="404 page not found")

    def _cut(self, request: web.Request) -> web.Response:
        assert request.transport
        request.transport.abort()
        return web.Response(status=500)

    def _remove_blobs(self, digests: set[str]) -> None:
        for digest in digests - {used for model in self.models.values() for used in model.blobs}:
            self.blob(digest).unlink()

    async def _blobs(self, request: web.Request) -> web.Response:
        digest = request.path.rpartition("/")[2]
        if request.method == "HEAD":
            return web.Response(status=200 if self.blob(digest).exists() else 404)
        if "dies_in_upload" in self.faults:
            await request.content.read(1000)
            self.dead = True
            return self._cut(request)
        content = await request.read()
        if "hangs_in_upload" in self.faults:
            while request.transport:  # until the client has left
                await asyncio.sleep(0.01)
            return web.Response(status=500)
        if "damaged_upload" in self.faults:
            content = content[:-1]
        if f"sha256:{hashlib.sha256(content).hexdigest()}" != digest:
            said = f'digest mismatch, expected "{digest}"'
            return web.json_response({"error": said}, status=400)
        self.blob(digest).write_bytes(content)
        return web.Response(status=201)

    def _create(self, request: web.Request, body: dict[str, Any]) -> web.Response:
        if body.get("adapters") and ("no_adapters" in self.faults or self.release == WITHOUT_ADAPTERS):
            return web.json_response({"error": "LoRA adapters are no longer supported"}, status=400)
        assert body["stream"] is False
        steps = [{"status": "parsing GGUF"}, {"status": "writing manifest"}]
        model = self._made(body)
        if "error_in_stream" in self.faults:
            steps.append({"error": "invalid file: unexpected EOF"})
        elif not all(self.blob(digest).exists() for digest in model.blobs):
            return web.json_response({"error": "blob not found"}, status=400)
        else:
            if "forgets" not in self.faults:
                self.models[full(body["model"])] = model
            steps.append({"status": "success"})
        if "dies_in_create" in self.faults:
            self.dead = True
            return self._cut(request)
        if self.faults & {"ndjson", "error_in_stream"}:
            lines = b"".join(orjson.dumps(step) + b"\n" for step in steps)
            return web.Response(body=lines, content_type="application/x-ndjson")
        return web.json_response(steps[-1])

    def _made(self, body: dict[str, Any]) -> Model:
        """Make a model from a base, which it inherits everything from, or from files, when it inherits nothing."""
        if base := body.get("from"):
            assert full(base) in self.models, "Ollama would download it now"
            model = deepcopy(self.models[full(base)])
            (model.adapter,) = body["adapters"].values()
            return model
        weights, *projectors = sorted(body["files"].items())
        sent = {name: body[name] for name in SENT if name in body and f"forgets_{name}" not in self.faults}
        return Model(weights[1], projector=projectors[0][1] if projectors else None, **sent)

    def _shown(self, model: Model) -> dict[str, Any]:
        """Describe a model as ``GetModelInfo`` does."""
        lines = ['# Modelfile generated by "ollama show"', f"FROM {self.blob(model.weights)}"]
        lines += [f"ADAPTER {self.blob(model.adapter)}"] if model.adapter else []
        lines += [f"FROM {self.blob(model.projector)}"] if model.projector else []
        lines += [f"TEMPLATE {_quoted(model.template or '{{ .Prompt }}')}"]
        lines += [f"SYSTEM {_quoted(model.system)}"] if model.system else []
        lines += [f"RENDERER {model.renderer}"] if model.renderer else []
        lines += [f"PARSER {model.parser}"] if model.parser else []
        listed = [
            (name, each)
            for name, value in model.parameters.items()
            for each in (value if isinstance(value, list) else [value])
        ]
        lines += [f"PARAMETER {name} {_quoted(str(each))}" for name, each in listed]
        lines += [f"LICENSE {_quoted(model.license)}"] if model.license else []
        lines += [f"MESSAGE {each['role']} {_quoted(each['content'])}" for each in model.messages]
        return {
            "modelfile": "\n".join(lines) + "\n",
            "template": model.template or "{% for message in messages %}…",  # the one in the GGUF
            "system": model.system,
            "parameters": "\n".join(f"{name:<30} {orjson.dumps(each).decode()}" for name, each in listed),
            "messages": model.messages,
            "license": model.license,
            "capabilities": ["completion", *(["vision"] if model.projector else [])],
            **({"projector_info": {"general.architecture": "clip"}} if model.projector else {}),
        }

    async def _render(self, name: str, body: dict[str, Any]) -> web.Response:
        """Render a prompt, with the real engine's template if the model has none of its own."""
        if "no_render" in self.faults:  # an old release answers instead
            return web.json_response({"message": {"role": "assistant", "content": "Red"}, "done": True})
        assert body["_debug_render_only"]
        model, messages = self.models[name], self._with_system(name, body["messages"])
        server = await self._server(name)
        if model.template:
            text = model.template.replace("{{ .System }}", model.system)
            text = text.replace("{{ .Prompt }}", messages[-1]["content"])
        else:
            async with (
                aiohttp.ClientSession() as session,
                session.post(f"{server.url}/apply-template", json={"messages": messages}) as answer,
            ):
                text = (await answer.json())["prompt"]
        if "renders_otherwise" in self.faults and "-burnish:" in name:
            text += " "
        return web.json_response({"model": name, "_debug_info": {"rendered_template": text}})

    def _with_system(self, name: str, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        model = self.models[name]
        own = [*model.messages, *messages]
        if model.system and own[0]["role"] != "system":
            return [{"role": "system", "content": model.system}, *own]
        return own

    async def _server(self, name: str) -> LlamaServer:
        """Return the llama-server of a model, which starts with its first request."""
        async with self._starting:
            if name not in self.running:
                log = self.folder / f"{name.replace(':', '-').replace('/', '-')}.log"
                deaf = "deaf" in self.faults
                model = self.models[full(self.base)] if deaf else self.models[name]
                weights = ["--model", str(self.blob(model.weights)), "--alias", name]
                lora = ["--lora", str(self.blob(model.adapter))] if model.adapter else []
                server = LlamaServer([*self.engine, *weights, *lora], log)
                await asyncio.to_thread(server.__enter__)
                self.running[name] = server
        return self.running[name]

    async def _relay(self, request: web.Request) -> web.StreamResponse:
        if request.path == "/v1/models":
            cards = [{"id": name, "object": "model", "owned_by": "library"} for name in self.models]
            return web.json_response({"object": "list", "data": cards})
        content = await request.read()
        body = orjson.loads(content)
        name = full(body["model"])
        if name not in self.models:
            return web.json_response({"error": {"message": f"model '{name}' not found"}}, status=404)
        if "messages" in body:
            content = orjson.dumps(body | {"messages": self._with_system(name, body["messages"])})
        server = await self._server(name)
        kind = {"content-type": "application/json"}
        async with (
            aiohttp.ClientSession() as session,
            session.post(server.url + request.path, data=content, headers=kind) as upstream,
        ):
            reply = web.StreamResponse(
                status=upstream.status, headers={"content-type": upstream.content_type}
            )
            with suppress(ConnectionResetError):  # the client has left
                await reply.prepare(request)
                async for piece in upstream.content.iter_any():
                    await reply.write(piece)
                await reply.write_eof()
            return reply

    async def _continue(self, name: str, body: dict[str, Any]) -> web.Response:
        """Go on with a raw text."""
        assert body["raw"]
        server = await self._server(name)
        options = body["options"]
        asked = {"prompt": body["prompt"], "max_tokens": options["num_predict"], "temperature": 0}
        async with (
            aiohttp.ClientSession() as session,
            session.post(
                f"{server.url}/v1/completions", json=asked | {"logprobs": body["top_logprobs"]}
            ) as answer,
        ):
            choice = (await answer.json())["choices"][0]
        tops = choice["logprobs"]["content"]
        shown = {"logprobs": tops} if "no_logprobs" not in self.faults else {}
        return web.json_response({"model": name, "response": choice["text"], "done": True} | shown)

    async def _stop(self, name: str) -> None:
        if server := self.running.pop(name, None):
            await asyncio.to_thread(server.__exit__)


def _quoted(text: str) -> str:
    """Quote as parser.go's ``quote`` does."""
    if "\n" in text or text != text.strip(" "):
        return f'"""{text}"""' if '"' in text else f'"{text}"'
    return text


@asynccontextmanager
async def ollama_double(
    folder: Path,
    base: str,
    gguf: Path,
    digest: str,
    *,
    release: str = WITH_ADAPTERS,
    context: int = 1024,
    parallel: int = 1,
) -> AsyncIterator[OllamaDouble]:
    """Run one that has a single base model; ``context``: tokens of all ``parallel`` requests together."""
    slots = ["--ctx-size", str(context), "--parallel", str(parallel)]
    engine = [*slots, "--fit", "off", "--cache-ram", "0"]
    double = OllamaDouble(folder, {full(base): Model(digest)}, engine, base, release)
    double.blob(digest).symlink_to(gguf)
    app = web.Application(client_max_size=1024**3)
    app.router.add_route("*", "/{path:.*}", double._answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        double.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield double
    finally:
        await runner.cleanup()
        for name in list(double.running):
            await double._stop(name)
