"""Doubles of vLLM and SGLang that speak as they do on the wire: the same statuses, words and listings, no weights."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from burnish.adapters.manifest import AdapterVersion
from burnish.adapters.registry import Registry
from tests.support.lora import random_lora, register, write_peft
from tests.support.next_tokens import next_tokens, text_of, word


@dataclass
class NamedLoraDouble:
    """What both engines have; a subclass answers in its own way."""

    base: str = "smollm2"
    max_rank: int = 16
    can_load: bool = True
    """False: started without what makes adapters loadable at runtime."""
    api_key: str | None = None
    shares_files: bool = True
    """False: it runs on another machine."""
    lies: bool = False
    """Says that it loaded, but does not list it, like another replica behind one address."""
    deaf: bool = False
    """Takes adapters, and answers as the base model."""
    logprobs: bool = True
    """False: it gives texts only."""
    busy: int = 0
    """Refuses so many requests for text."""
    strength: float = 1.0
    """How far adapters move its answers."""
    asleep: bool | None = None
    """None: started without sleep mode."""
    loaded: dict[str, str] = field(default_factory=dict)
    """Name → path."""
    asked: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    """Every POST, in order."""
    root: str = "/models/base"
    load_route = ""
    unload_route = ""
    owner = "vllm"
    others: ClassVar[dict[str, str]] = {}
    """Base models beside it."""

    def restart(self) -> None:
        """Forget what was loaded, as both do."""
        self.loaded.clear()

    def app(self) -> Starlette:
        routes = [Route("/v1/models", self.models), Route("/v1/completions", self.complete, methods=["POST"])]
        if self.asleep is not None:
            routes += [
                Route("/is_sleeping", self.is_sleeping),
                Route("/sleep", self.sleep, methods=["POST"]),
                Route("/wake_up", self.wake_up, methods=["POST"]),
            ]
        if self.can_load or self.load_route == "/load_lora_adapter":
            routes.append(Route(self.load_route, self.load, methods=["POST"]))
            routes.append(Route(self.unload_route, self.unload, methods=["POST"]))
        return Starlette(routes=routes, exception_handlers={404: lambda *_: self.no_route()})

    async def is_sleeping(self, request: Request) -> Response:
        return JSONResponse({"is_sleeping": self.asleep})

    async def sleep(self, request: Request) -> Response:
        self.asked.append((f"/sleep?{request.url.query}", {}))
        self.asleep = True
        return JSONResponse({"status": "sleeping", "level": 1})

    async def wake_up(self, request: Request) -> Response:
        self.asked.append(("/wake_up", {}))
        self.asleep = False
        return JSONResponse({"status": "awake", "tags": None})

    def no_route(self) -> Response:
        return JSONResponse({"detail": "Not Found"}, 404)

    def refuses(self, request: Request) -> Response | None:
        if self.api_key and request.headers.get("authorization") != f"Bearer {self.api_key}":
            return JSONResponse({"error": "Unauthorized"}, 401)
        return None

    async def models(self, request: Request) -> Response:
        served = {self.base: self.root, **self.others, **self.loaded}
        parent_of = dict.fromkeys(self.loaded, self.base)
        cards = [
            {"id": id, "owned_by": self.owner, "root": path, "parent": parent_of.get(id)}
            for id, path in served.items()
        ]
        return self.refuses(request) or JSONResponse({"object": "list", "data": cards})

    async def complete(self, request: Request) -> Response:
        assert not self.asleep, "a sleeping vLLM must not be asked"
        body = await request.json()
        self.asked.append((request.url.path, body))
        if not self.knows(body["model"]):
            return error(404, f"The model `{body['model']}` does not exist.", "NotFoundError")
        if self.busy:
            self.busy -= 1
            return error(503, "The server is overloaded.", "ServiceUnavailable")
        return self.refuses(request) or JSONResponse({"choices": [self.choice(body)]})

    def choice(self, body: dict[str, Any]) -> dict[str, Any]:
        path = None if self.deaf else self.loaded.get(body["model"].rpartition(":")[2])
        logps = next_tokens(
            body["prompt"], Path(path) if path else None, rounding=0.5, strength=self.strength
        )
        tops = {self.token(token): logp for token, logp in logps.items()}
        return {"text": text_of(logps), "logprobs": {"top_logprobs": [tops]} if self.logprobs else None}

    def token(self, token: int) -> str:
        """A token's name in log-probabilities."""
        return f"token_id:{token}"

    def knows(self, model: str) -> bool:
        return model in {self.base, *self.others, *self.loaded}

    async def asked_for(self, request: Request) -> dict[str, Any]:
        body: dict[str, Any] = await request.json()
        self.asked.append((request.url.path, body))
        return body

    async def load(self, request: Request) -> Response:
        raise NotImplementedError

    async def unload(self, request: Request) -> Response:
        raise NotImplementedError

    def config(self, path: str) -> dict[str, Any] | None:
        """The adapter's configuration, or None when there is no such directory here."""
        file = Path(path) / "adapter_config.json"
        return json.loads(file.read_text()) if self.shares_files and file.exists() else None


class VllmDouble(NamedLoraDouble):
    """vLLM 0.32."""

    load_route = "/v1/load_lora_adapter"
    unload_route = "/v1/unload_lora_adapter"

    async def load(self, request: Request) -> Response:
        body = await self.asked_for(request)
        name, path = body["lora_name"], body["lora_path"]
        if refusal := self.refuses(request):
            return refusal
        if name == self.base:
            return error(
                400, f"The lora adapter '{name}' conflicts with a served base model.", "InvalidUserInput"
            )
        if name in self.loaded:
            return error(400, f"The lora adapter '{name}' has already been loaded. …", "InvalidUserInput")
        config = self.config(path)
        if config is None:
            return error(404, f"Loading lora {name} failed: No adapter found for {path}", "NotFoundError")
        if faults := self.faults(config):
            return error(500, " ".join(faults), "InternalServerError")
        if not self.lies:
            self.loaded[name] = path
        return PlainTextResponse(f"Success: LoRA adapter '{name}' added successfully.")

    async def unload(self, request: Request) -> Response:
        name = (await self.asked_for(request))["lora_name"]
        if self.loaded.pop(name, None) is None:
            return error(404, f"The lora adapter '{name}' cannot be found.", "NotFoundError")
        return PlainTextResponse(f"Success: LoRA adapter '{name}' removed successfully.")

    def faults(self, config: dict[str, Any]) -> list[str]:
        """All that vLLM's own look at the configuration finds, in its words and order."""
        rank = max([config["r"], *config.get("rank_pattern", {}).values()])
        faults = {
            "vLLM only supports modules_to_save being either None or …": config.get("modules_to_save"),
            "vLLM does not yet support DoRA.": config.get("use_dora"),
            "vLLM does not support LoRA bias (lora_bias).": config.get("lora_bias"),
            f"LoRA rank {rank} is greater than max_lora_rank {self.max_rank}.": rank > self.max_rank,
            "Adapter bias is not supported.": config["bias"] != "none",
        }
        return [text for text, found in faults.items() if found]


class SglangDouble(NamedLoraDouble):
    """SGLang, from its documentation and source; it was not run."""

    def token(self, token: int) -> str:
        return word(token)

    owner = "sglang"
    load_route = "/load_lora_adapter"
    unload_route = "/unload_lora_adapter"

    def knows(self, model: str) -> bool:
        # The first colon ends the base's name, of which no more is asked; without a colon any name is the bare model.
        _, colon, adapter = model.partition(":")
        return not colon or adapter in self.loaded

    async def load(self, request: Request) -> Response:
        body = await self.asked_for(request)
        name, path = body["lora_name"], body["lora_path"]
        if not self.can_load:
            return self.answer("LoRA is not enabled. Please set `--enable-lora` to enable LoRA.")
        if name in self.loaded:
            return self.answer(f"Failed to load LoRA adapter {name} from {path}: already loaded")
        config = self.config(path)
        if config is None:
            return self.answer(f"[Errno 2] No such file or directory: '{path}/adapter_config.json'")
        if config["r"] > self.max_rank:
            return self.answer(
                f"LoRA adapter {name} with rank {config['r']} is incompatible with the current LoRA memory pool "
                "configuration. Please ensure that the LoRA adapter's rank is within the configured "
                "`--max-lora-rank` and that the target modules are included in `--lora-target-modules`."
            )
        if not self.lies:
            self.loaded[name] = path
        return self.answer()

    async def unload(self, request: Request) -> Response:
        name = (await self.asked_for(request))["lora_name"]
        if self.loaded.pop(name, None) is None:
            return self.answer(f"LoRA adapter with name {name} does not exist.")
        return self.answer()

    def answer(self, fault: str = "") -> Response:
        said = {"success": not fault, "error_message": fault, "loaded_adapters": self.loaded}
        return JSONResponse(said, 400 if fault else 200)


def error(status: int, message: str, kind: str) -> Response:
    """vLLM's envelope of an error."""
    return JSONResponse({"error": {"message": message, "type": kind, "param": None, "code": status}}, status)


class Engine(VllmDouble):
    """The double, which also chats: every answer is the name that was asked for."""

    others: ClassVar[dict[str, str]] = {"other": "/models/other"}

    def app(self) -> Starlette:
        app = super().app()
        app.router.routes.insert(0, Route("/v1/chat/completions", self.chat, methods=["POST"]))
        return app

    async def chat(self, request: Request) -> Response:
        assert not self.asleep, "a sleeping vLLM must not be asked"
        model = (await self.asked_for(request))["model"]
        if not self.knows(model):
            return error(404, f"The model `{model}` does not exist.", "NotFoundError")
        message = {"role": "assistant", "content": model}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return JSONResponse({"id": "chatcmpl-1", "model": model, "choices": [choice]})


def live_version(tmp_path: Path, digest: str) -> AdapterVersion:
    registry = Registry(tmp_path / "data" / "adapters")
    made = register(registry, write_peft(tmp_path / "made", random_lora(1)), digest)
    registry.record(made.number, "live", "for the test", replaced=0)
    return made


async def trouble(http: httpx.AsyncClient) -> str:
    """What burnish says is wrong with its engine; empty: nothing."""
    return (await http.get("/burnish/status")).json()["engine"]["trouble"] or ""


async def ask(http: httpx.AsyncClient, model: str) -> str:
    body = {"model": model, "messages": [{"role": "user", "content": "Who are you?"}]}
    answer = await http.post("/v1/chat/completions", json=body)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["choices"][0]["message"]["content"])
