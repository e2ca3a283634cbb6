"""Ollama's protocol in front of real llama-servers, as Ollama itself runs them: one process a model, with --lora.

Ollama is on no package registry, so this stands in for it where it is not installed. What it answers is taken from
Ollama's documentation and source (0.33), the replies come from the real engine.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import orjson
from aiohttp import web

from tests.support.llama_server import LlamaServer


def full(name: str) -> str:
    return name if ":" in name else f"{name}:latest"


@dataclass
class OllamaDouble:
    """The running double; ``faults`` may be changed at any time."""

    folder: Path
    models: dict[str, list[str]]
    """Full name → arguments of its llama-server."""
    faults: set[str] = field(default_factory=set)
    """Of "ndjson", "error_in_stream", "damaged_upload", "no_adapters", "forgets"."""
    base_digest: str = ""
    api_key: str | None = None
    url: str = ""
    requests: list[tuple[str, str]] = field(default_factory=list)
    running: dict[str, LlamaServer] = field(default_factory=dict)
    _starting: asyncio.Lock = field(default_factory=asyncio.Lock)

    def blob(self, digest: str) -> Path:
        return self.folder / digest.replace(":", "-")

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.requests.append((request.method, request.path))
        if self.api_key and request.headers.get("authorization") != f"Bearer {self.api_key}":
            return web.json_response({"error": "unauthorized"}, status=401)
        if request.path.startswith("/api/blobs/"):
            return await self._blobs(request)
        if request.path == "/api/version":
            return web.json_response({"version": "0.33.0"})
        if request.path == "/v1/models":
            cards = [{"id": name, "object": "model", "owned_by": "library"} for name in self.models]
            return web.json_response({"object": "list", "data": cards})
        if request.path.startswith("/v1/"):
            return await self._relay(request)
        body = orjson.loads(await request.read() or b"{}")
        match request.method, request.path:
            case "GET", "/api/tags":
                return web.json_response({"models": [{"name": name, "model": name} for name in self.models]})
            case "POST", "/api/create":
                return self._create(body)
        name = full(body.get("model", ""))
        if name not in self.models:
            return web.json_response({"error": f"model '{name}' not found"}, status=404)
        match request.method, request.path:
            case "POST", "/api/show":
                lines = f"# Modelfile\nFROM {self.blob(self.base_digest)}\nTEMPLATE x\n"
                return web.json_response({"modelfile": lines})
            case "POST", "/api/generate":
                assert body["keep_alive"] == 0
                await self._stop(name)
                return web.json_response({"model": name, "done": True, "done_reason": "unload"})
            case "DELETE", "/api/delete":
                await self._stop(name)
                del self.models[name]
                return web.Response()
        return web.Response(status=404, text="404 page not found")

    async def _blobs(self, request: web.Request) -> web.Response:
        digest = request.path.rpartition("/")[2]
        if request.method == "HEAD":
            return web.Response(status=200 if self.blob(digest).exists() else 404)
        content = await request.read()
        if "damaged_upload" in self.faults:
            content = content[:-1]
        if f"sha256:{hashlib.sha256(content).hexdigest()}" != digest:
            said = f'digest mismatch, expected "{digest}"'
            return web.json_response({"error": said}, status=400)
        self.blob(digest).write_bytes(content)
        return web.Response(status=201)

    def _create(self, body: dict) -> web.Response:
        if "no_adapters" in self.faults:
            return web.json_response({"error": "LoRA adapters are no longer supported"}, status=400)
        name, base = full(body["model"]), full(body["from"])
        assert base in self.models, "Ollama would download it now"
        (digest,) = body["adapters"].values()
        assert body["stream"] is False
        steps = [{"status": "reading model metadata"}, {"status": "creating adapter layer"}]
        if "error_in_stream" in self.faults:
            steps.append({"error": "invalid adapter: unexpected EOF"})
        elif not self.blob(digest).exists():
            return web.json_response({"error": "blob not found"}, status=400)
        else:
            if "forgets" not in self.faults:
                self.models[name] = [*self.models[base], "--lora", str(self.blob(digest))]
            steps.append({"status": "success"})
        if self.faults & {"ndjson", "error_in_stream"}:
            lines = b"".join(orjson.dumps(step) + b"\n" for step in steps)
            return web.Response(body=lines, content_type="application/x-ndjson")
        return web.json_response(steps[-1])

    async def _relay(self, request: web.Request) -> web.StreamResponse:
        content = await request.read()
        name = full(orjson.loads(content)["model"])
        if name not in self.models:
            return web.json_response({"error": {"message": f"model '{name}' not found"}}, status=404)
        async with self._starting:
            if name not in self.running:
                log = self.folder / f"{name.replace(':', '-').replace('/', '-')}.log"
                server = LlamaServer([*self.models[name], "--alias", name], log)
                await asyncio.to_thread(server.__enter__)
                self.running[name] = server
        kind = {"content-type": "application/json"}
        async with (
            aiohttp.ClientSession() as session,
            session.post(self.running[name].url + request.path, data=content, headers=kind) as upstream,
        ):
            reply = web.StreamResponse(
                status=upstream.status, headers={"content-type": upstream.content_type}
            )
            await reply.prepare(request)
            async for piece in upstream.content.iter_any():
                await reply.write(piece)
            await reply.write_eof()
            return reply

    async def _stop(self, name: str) -> None:
        if server := self.running.pop(name, None):
            await asyncio.to_thread(server.__exit__)


@asynccontextmanager
async def ollama_double(folder: Path, base: str, gguf: Path, digest: str) -> AsyncIterator[OllamaDouble]:
    """Run one that has a single base model."""
    arguments = ["--model", str(gguf), "--ctx-size", "1024", "--parallel", "1", "--fit", "off"]
    double = OllamaDouble(folder, {full(base): [*arguments, "--cache-ram", "0"]}, base_digest=digest)
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
