"""A user's own Ollama: each version is a model, created from the base and an uploaded adapter."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from typing import Any

import orjson

from burnish.adapters.errors import CorruptAdapter, EngineError, EngineRefused, IncompatibleAdapter
from burnish.adapters.hosts.base import Endpoint, Limits, engine_name
from burnish.adapters.hosts.converted import check_base, ensure_converted
from burnish.adapters.hosts.user_engine import MAX_RANK, NamedModelHost
from burnish.adapters.manifest import BASE_VERSION, AdapterVersion

# Ollama's own default for one processor or graphics card (OLLAMA_MAX_LOADED_MODELS).
MAX_RESIDENT = 3
# An adapter has tens of megabytes, and Ollama may run on another machine.
UPLOAD_TIMEOUT_S = 300.0
# It links layers in milliseconds, but may have to copy them on a slow disk.
CREATE_TIMEOUT_S = 120.0
# It ends a process, after its running requests.
UNLOAD_TIMEOUT_S = 30.0

_PIECE_BYTES = 1024**2
# The path of the base's weights in `ollama show --modelfile`.
_WEIGHTS = re.compile(r"^FROM .*sha256[-:](?P<digest>[0-9a-f]{64})\s*$", re.MULTILINE)
_NOT_IN_NAMES = re.compile(r"[^\w.-]+", re.ASCII)
# The answer of releases from 0.34.1 on.
_NO_ADAPTERS = "adapters are no longer supported"


class OllamaHost(NamedModelHost):
    """AdapterHost over a running Ollama. Serves ``<base>`` and ``<base>-burnish:v<n>-<content>``.

    Its other models are left alone; only models that burnish created are deleted.
    """

    limits = Limits(max_rank=MAX_RANK, max_resident=MAX_RESIDENT, base_stays=True, keeps=True)

    async def check(self) -> None:
        """Check that it is Ollama, that it has the base, and that the base has the expected weights."""
        await self.load(None)
        await self._check_weights()

    async def load(self, version: AdapterVersion | None) -> Endpoint:
        """Create a model for a version (None: look for the base); see AdapterHost.load."""
        async with self._lock:
            if version:
                check_base(version, self.base_digest, self.base_model)
            models = await self._models()
            # Ollama would download a base that it lacks: gigabytes, and maybe other weights.
            if _full(self.base_model) not in models:
                raise EngineError(
                    f"Ollama has no model {self.base_model!r}; run `ollama pull {self.base_model}`, or create it "
                    f"from {self._base_path} with `ollama create`"
                )
            if version is None:
                self._loaded[BASE_VERSION] = self.base_model
                return self._endpoint(self.base_model, BASE_VERSION)
            name = self.name_of(version)
            if name not in models:
                await self._check_weights()
                await self._create(version, name)
            self._loaded[version.number] = name
            return self._endpoint(name, version.number)

    def name_of(self, version: AdapterVersion) -> str:
        """Return e.g. "qwen3-burnish:v7-1a2b3c4d", because names in Ollama end in a tag."""
        content = engine_name(version).rpartition("-")[2]
        base = _NOT_IN_NAMES.sub("-", self.base_model.removesuffix(":latest"))
        return f"{base}-burnish:v{version.number}-{content}"

    async def _serving(self) -> set[str]:
        models = await self._models()
        return models | ({self.base_model} if _full(self.base_model) in models else set())

    async def _models(self) -> set[str]:
        """Return the full names of all models. Raises EngineError."""
        answer = await self._api.ask("GET", "/api/tags")
        try:
            return {_full(model["name"]) for model in answer["models"]}
        except (KeyError, TypeError) as error:
            raise EngineError(f"{self._api.url} does not answer as Ollama does; check the URL") from error

    async def _check_weights(self) -> None:
        """Compare the base's weights, if Ollama names their file, with those that versions are trained on."""
        answer = await self._api.ask("POST", "/api/show", {"model": self.base_model})
        modelfile = answer.get("modelfile", "") if isinstance(answer, dict) else ""
        found = {f"sha256:{match['digest']}" for match in _WEIGHTS.finditer(str(modelfile))}
        if found and self.base_digest not in found:
            raise IncompatibleAdapter(
                f"Ollama's {self.base_model} is made of the weights {', '.join(sorted(found))}, but versions are "
                f"trained on {self.base_digest}; create a model from {self._base_path} with `ollama create`, and set "
                "model to its name"
            )

    async def _create(self, version: AdapterVersion, name: str) -> None:
        target = self._converted(version)
        try:
            # GGUF, because Ollama's own import of safetensors mixes up the rows of some factors.
            await ensure_converted(version, self._base_path, target)
            digest = await asyncio.to_thread(_digest, target)
            await self._upload(target, digest)
            await self._ask_to_create(name, digest)
            if name not in await self._models():
                raise EngineError(
                    f"Ollama says that it created {name}, but does not list it; its log says why"
                )
        except BaseException:  # cancelled as well: nothing may stay
            with suppress(EngineError):  # the caller must see the first error
                await asyncio.shield(self._drop(name))
            raise
        finally:
            target.unlink(missing_ok=True)  # Ollama keeps its own copy

    async def _upload(self, file: Path, digest: str) -> None:
        path = f"/api/blobs/{digest}"
        try:
            await self._api.ask("HEAD", path)
        except EngineRefused as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
        else:
            return
        try:
            await self._api.ask("POST", path, _pieces(file), timeout_s=UPLOAD_TIMEOUT_S)
        except EngineRefused as error:
            if "digest" in error.detail:
                raise CorruptAdapter(
                    f"{file.name} changed on its way to Ollama ({error.detail}); try again"
                ) from error
            raise

    async def _ask_to_create(self, name: str, digest: str) -> None:
        body = {"model": name, "from": self.base_model, "adapters": {"adapter.gguf": digest}, "stream": False}
        try:
            answer = await self._api.ask("POST", "/api/create", body, timeout_s=CREATE_TIMEOUT_S)
            fault = _error_in(answer)
        except EngineRefused as error:
            fault = error.detail
        if fault and _NO_ADAPTERS in fault:
            raise EngineError(
                f"this Ollama takes no adapters ({fault}): releases from 0.34.1 on don't. Use 0.33 or older, or "
                "llama-server in router mode"
            )
        if fault:
            raise EngineError(f"Ollama could not create {name}: {fault}")

    async def _drop(self, name: str) -> None:
        if name not in await self._models():
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


def _full(name: str) -> str:
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
