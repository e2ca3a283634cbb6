"""Ollama's routes for models: list, show, upload, create, render a prompt, delete. Checked against its source."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from http import HTTPStatus
from pathlib import Path
from typing import Any

import orjson

from burnish.adapters.errors import (
    CorruptAdapter,
    EngineError,
    EngineRefused,
    EngineUnreachable,
    ProbeFailed,
)
from burnish.adapters.hosts.api import LIKELIEST, REASON_CHARACTERS, EngineApi
from burnish.adapters.hosts.base import Continuation
from burnish.adapters.hosts.ollama_show import ModelDescription, read_description

# An adapter has tens of megabytes, and Ollama may run on another machine.
UPLOAD_TIMEOUT_S = 300.0
# The slowest upload that is waited for: Wi-Fi at its worst. A merged 8B has 8.5 GB, so half an hour.
UPLOAD_BYTES_PER_S = 5e6
# It links layers in milliseconds, but may have to copy them on a slow disk.
CREATE_TIMEOUT_S = 120.0
# It reads a model into memory before it renders a prompt or answers.
LOAD_TIMEOUT_S = 60.0
# A slow hard disk.
DISK_BYTES_PER_S = 50e6
# It ends a process, after its running requests.
UNLOAD_TIMEOUT_S = 30.0

_PIECE_BYTES = 1024**2
_NO_ADAPTERS = "adapters are no longer supported"
# A turn of each side, so that the prompt has every part of a template.
_SAMPLE = [
    {"role": "user", "content": "Name a colour."},
    {"role": "assistant", "content": "Blue."},
    {"role": "user", "content": "Another one."},
]


class AdaptersRefused(EngineError):
    """The release makes no model from a base and an adapter."""


class OllamaApi:
    """The routes for models of one Ollama. Every method may raise EngineError."""

    def __init__(self, api: EngineApi) -> None:
        self._api = api
        self.url = api.url

    async def release(self) -> str:
        """Return e.g. "0.34.1"; "" if it doesn't say."""
        answer = await self._api.ask("GET", "/api/version")
        return str(answer.get("version", "")) if isinstance(answer, dict) else ""

    async def models(self) -> set[str]:
        """Return the full names of all models."""
        answer = await self._api.ask("GET", "/api/tags")
        try:
            return {full(model["name"]) for model in answer["models"]}
        except (KeyError, TypeError) as error:
            raise EngineError(f"{self.url} does not answer as Ollama does; check the URL") from error

    async def show(self, name: str) -> ModelDescription:
        return read_description(await self._api.ask("POST", "/api/show", {"model": name}))

    async def upload(self, file: Path) -> str:
        """Upload a file unless Ollama has it; return its "sha256:<hex>". Raises CorruptAdapter if it changed."""
        digest = await asyncio.to_thread(_digest, file)
        path = f"/api/blobs/{digest}"
        try:
            await self._api.ask("HEAD", path)
        except EngineRefused as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
        else:
            return digest
        size = (await asyncio.to_thread(file.stat)).st_size
        limit_s = UPLOAD_TIMEOUT_S + size / UPLOAD_BYTES_PER_S
        try:
            await self._api.ask("POST", path, _pieces(file), timeout_s=limit_s)
        except EngineRefused as error:
            if "digest" in error.detail:
                raise CorruptAdapter(
                    f"{file.name} changed on its way to Ollama ({error.detail}); try again"
                ) from error
            raise
        except EngineUnreachable as error:
            raise EngineUnreachable(
                f"Ollama stopped while {size / 1e6:,.0f} MB were uploaded to it ({error}); what was live stays live. "
                "Start Ollama, and try again"
            ) from error
        return digest

    async def create(self, name: str, body: dict[str, Any], size_bytes: int) -> None:
        """Create a model. Raises AdaptersRefused if ``body`` has adapters and this release takes none."""
        limit_s = CREATE_TIMEOUT_S + size_bytes / DISK_BYTES_PER_S
        try:
            answer = await self._api.ask(
                "POST", "/api/create", {"model": name, "stream": False} | body, timeout_s=limit_s
            )
            fault = _error_in(answer)
        except EngineRefused as error:
            fault = error.detail
        except EngineUnreachable as error:
            raise EngineUnreachable(
                f"Ollama stopped while it created {name} ({error}); what was live stays live. Start Ollama, and try "
                "again"
            ) from error
        if fault and _NO_ADAPTERS in fault:
            raise AdaptersRefused(f"this Ollama takes no adapters ({fault})")
        if fault:
            raise EngineError(f"Ollama could not create {name}: {fault}")
        if full(name) not in await self.models():
            raise EngineError(f"Ollama says that it created {name}, but does not list it; its log says why")

    async def rendered(self, name: str, size_bytes: int) -> str | None:
        """Load a model; return the prompt that it makes of a sample, None if this release can't show it."""
        body = {"model": name, "messages": _SAMPLE, "stream": False, "_debug_render_only": True}
        # A release that doesn't know the flag answers instead; one token is enough.
        body |= {"options": {"num_predict": 1}}
        limit_s = LOAD_TIMEOUT_S + size_bytes / DISK_BYTES_PER_S
        answer = await self._api.ask("POST", "/api/chat", body, timeout_s=limit_s)
        debug_info = answer.get("_debug_info") if isinstance(answer, dict) else None
        return str(debug_info["rendered_template"]) if debug_info else None

    async def continuation(self, name: str, text: str, tokens: int) -> Continuation:
        """Go on with a text, past the template. Log-probabilities come from 0.12.11 on."""
        body = {"model": name, "prompt": text, "raw": True, "stream": False}
        body |= {"logprobs": True, "top_logprobs": LIKELIEST}
        body |= {"options": {"num_predict": tokens, "temperature": 0, "seed": 0}}
        answer = await self._api.ask("POST", "/api/generate", body, timeout_s=LOAD_TIMEOUT_S)
        try:
            tops = (answer.get("logprobs") or [{}])[0].get("top_logprobs") or []
            likeliest = {top["token"]: float(top["logprob"]) for top in tops}
            return Continuation(str(answer["response"]), likeliest)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise ProbeFailed(f"its answer isn't one of Ollama's: {answer}"[:REASON_CHARACTERS]) from error

    async def drop(self, name: str) -> None:
        """Free a model's memory and delete it, if there is one. Ollama deletes its files, too."""
        if full(name) not in await self.models():
            return
        for method, path, body in (
            # Freed first, because a deleted model would stay in memory until its time is over.
            ("POST", "/api/generate", {"model": name, "keep_alive": 0}),
            ("DELETE", "/api/delete", {"model": name}),
        ):
            try:
                await self._api.ask(method, path, body, timeout_s=UNLOAD_TIMEOUT_S)
            except EngineRefused as error:
                if error.status != HTTPStatus.NOT_FOUND:
                    raise


def full(name: str) -> str:
    """Return a name with its tag, as Ollama lists it."""
    return name if ":" in name.rpartition("/")[2] else f"{name}:latest"


def _error_in(answer: Any) -> str | None:
    """Return the error in an answer with status 200: JSON or, from some releases, one line of JSON a step."""
    try:
        steps = [orjson.loads(line) for line in answer.splitlines()] if isinstance(answer, str) else [answer]
    except orjson.JSONDecodeError:
        return f"its answer isn't JSON: {answer[:200]}"
    for step in steps:
        if isinstance(step, dict) and step.get("error"):
            return str(step["error"])
    last = steps[-1] if steps else None
    if not isinstance(last, dict) or last.get("status") != "success":
        return f"its answer does not end with success: {last}"
    return None


def _digest(file: Path) -> str:
    with file.open("rb") as content:
        return "sha256:" + hashlib.file_digest(content, "sha256").hexdigest()


async def _pieces(file: Path) -> AsyncIterator[bytes]:
    """Read a file in pieces, off the event loop."""
    content = await asyncio.to_thread(file.open, "rb")
    try:
        while piece := await asyncio.to_thread(content.read, _PIECE_BYTES):
            yield piece
    finally:
        content.close()
