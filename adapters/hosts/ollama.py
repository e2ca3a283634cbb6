"""A user's own Ollama: each version is a model of its own beside the base.

Releases before 0.34.1 make it from the base and an uploaded adapter, and share the base's weights. Later ones refuse
adapters, so it is made from merged weights: a file as large as the base or larger, which inherits nothing from it.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from burnish.adapters.errors import EngineError, IncompatibleAdapter
from burnish.adapters.hosts.base import Continuation, Endpoint, HostLimits, engine_name
from burnish.adapters.hosts.converted import ensure_converted
from burnish.adapters.hosts.ollama_api import AdaptersRefused, OllamaApi, full
from burnish.adapters.hosts.ollama_show import ModelDescription, takes_adapters
from burnish.adapters.hosts.user_engine import MAX_RANK, ConvertingHost, NamedModelHost
from burnish.adapters.manifest import AdapterVersion, Probe
from burnish.adapters.merging import ensure_merged

# Ollama's own default for one processor or graphics card (OLLAMA_MAX_LOADED_MODELS).
MAX_RESIDENT = 3
# Left free on Ollama's disk beside a merged model, for everything else on it.
SPARE_DISK_BYTES = 512 * 1024**2

_GB = 1e9
_NOT_IN_NAMES = re.compile(r"[^\w.-]+", re.ASCII)
_MERGED = ".merged.gguf"


class OllamaHost(NamedModelHost, ConvertingHost):
    """AdapterHost over a running Ollama. Serves ``<base>`` and ``<base>-burnish:v<n>-<content>``.

    Its other models are left alone; only models that burnish created are deleted.
    """

    engine = "Ollama"
    remedy = "Update Ollama, or serve the model by llama.cpp"

    def __init__(self, url: str, **own: Any) -> None:
        """Send nothing yet. See ConvertingHost."""
        super().__init__(url, **own)
        self._ollama = OllamaApi(self._api)
        self._release: str | None = None
        self._merges = False
        self._base_prompt: tuple[ModelDescription, str | None] | None = None
        """The base's description, and the prompt that it makes of a sample."""

    @property
    def limits(self) -> HostLimits:
        """Merged models share no weights, so a replaced one is deleted at once: a rollback makes it again."""
        return HostLimits(
            MAX_RANK, MAX_RESIDENT, base_stays=True, keeps=not self._merges, merged=self._merges
        )

    async def continuation(self, endpoint: Endpoint, probe: Probe, tokens: int) -> Continuation:
        return await self._ollama.continuation(endpoint.model, probe.text, tokens)

    async def check(self) -> None:
        """Check that it is Ollama, that it has the base, and that the base has the expected weights."""
        await self.load(None)
        await self._base()

    async def _provide(self, version: AdapterVersion | None, name: str) -> None:
        models = await self._ollama.models()
        # Ollama would download a base that it lacks: gigabytes, and maybe other weights.
        if full(self.base_model) not in models:
            raise EngineError(
                f"Ollama has no model {self.base_model!r}; run `ollama pull {self.base_model}`, or create it "
                f"from {self._base_path} with `ollama create`"
            )
        await self._learn_release()
        if version and name not in models:
            await self._create(version, name)
        elif version and self._merges and version.number not in self._loaded:
            async with self._gone_on_error(name):  # a burnish that was killed may have left it unchecked
                await self._compare_prompts(name, await self._base(), self._base_path.stat().st_size)

    def name_of(self, version: AdapterVersion) -> str:
        """Return e.g. "qwen3-burnish:v7-1a2b3c4d", because names in Ollama end in a tag."""
        content = engine_name(version).rpartition("-")[2]
        base = _NOT_IN_NAMES.sub("-", self.base_model.removesuffix(":latest"))
        return f"{base}-burnish:v{version.number}-{content}"

    async def _serving(self) -> set[str]:
        models = await self._ollama.models()
        await self._learn_release()  # it may have been updated since
        return models | ({self.base_model} if full(self.base_model) in models else set())

    async def _drop(self, name: str) -> None:
        await self._ollama.drop(name)

    async def _learn_release(self) -> None:
        """Ask for the release, which may have changed since; what it refused before stays known."""
        release = await self._ollama.release()
        if release != self._release:
            self._release, self._merges = release, not takes_adapters(release)
            self.engine = f"Ollama {release}".rstrip()

    async def _base(self) -> ModelDescription:
        """Return the base's description. Raises IncompatibleAdapter if versions are trained on other weights."""
        base = await self._ollama.show(self.base_model)
        if base.digests and self.base_digest not in base.digests:
            raise IncompatibleAdapter(
                f"Ollama's {self.base_model} is made of the weights {', '.join(sorted(base.digests))}, but versions "
                f"are trained on {self.base_digest}; create a model from {self._base_path} with `ollama create`, and "
                "set model to its name"
            )
        if base.adapters:
            raise IncompatibleAdapter(
                f"Ollama's {self.base_model} has an adapter of its own ({', '.join(base.adapters)}), and versions "
                "aren't trained on it; set model to the model that it was made from"
            )
        return base

    async def _create(self, version: AdapterVersion, name: str) -> None:
        base = await self._base()
        try:
            await self._create_from(version, name, base)
        except AdaptersRefused:
            self._merges = True
            await self._create_from(version, name, base)

    async def _create_from(self, version: AdapterVersion, name: str, base: ModelDescription) -> None:
        """Upload a version, merged or as an adapter, and create its model; leave nothing if that fails."""
        target = self._file(version)
        async with self._gone_on_error(name):
            try:
                if self._merges:
                    await ensure_merged(version, self._base_path, target)
                    _demand_room(base, name, target.stat().st_size)
                else:
                    # GGUF, because Ollama's own import of safetensors mixes up the rows of some factors.
                    await ensure_converted(version, self._base_path, target)
                size = target.stat().st_size
                digest = await self._ollama.upload(target)
            finally:
                target.unlink(missing_ok=True)  # Ollama has its own copy
            await self._ollama.create(name, self._body(base, digest), size)
            if self._merges:
                await self._compare_prompts(name, base, size)

    @asynccontextmanager
    async def _gone_on_error(self, name: str) -> AsyncIterator[None]:
        """Delete a model if it can't be finished, also if that is cancelled."""
        try:
            yield
        except BaseException:
            with suppress(EngineError):  # the caller must see the first error
                await asyncio.shield(self._drop(name))
            raise

    def _file(self, version: AdapterVersion) -> Path:
        """Return the path of a version's upload. Replicas share a directory, and each deletes its own file."""
        converted = self._converted(version)
        if not self._merges:
            return converted
        engine = hashlib.sha256(self._api.url.encode()).hexdigest()[:8]
        target = converted.with_name(f"{converted.stem}-{engine}{_MERGED}")
        for leftover in converted.parent.glob(f"*-{engine}{_MERGED}"):
            leftover.unlink(missing_ok=True)  # burnish was killed during an upload
        return target

    def _body(self, base: ModelDescription, digest: str) -> dict[str, Any]:
        """Return the members of /api/create."""
        if not self._merges:
            return {"from": self.base_model, "adapters": {"adapter.gguf": digest}}
        projectors = (
            [projector for projector in base.digests if projector != self.base_digest] if base.sees else []
        )
        files = {f"projector-{number}.gguf": projector for number, projector in enumerate(projectors)}
        return {"files": {"model.gguf": digest} | files} | base.inherited()

    async def _compare_prompts(self, name: str, base: ModelDescription, size_bytes: int) -> None:
        """Check that a model from a file behaves like the base in all but its weights. Raises EngineError."""
        lost = base.lost_in(await self._ollama.show(name))
        if not lost:
            prompt = await self._ollama.rendered(name, size_bytes)
            if prompt == await self._prompt_of(base, size_bytes):
                return
            self._base_prompt = None  # a template may contain the date
            if prompt == await self._prompt_of(base, size_bytes):
                return
            lost = ["the prompt that it makes of a conversation"]
        raise EngineError(
            f"{name} isn't live, because Ollama made it differ from {self.base_model} in {', '.join(lost)}; it is "
            f"deleted. Create a model from {self._base_path} with a Modelfile that says TEMPLATE, SYSTEM and PARAMETER "
            "as well, and set model to its name"
        )

    async def _prompt_of(self, base: ModelDescription, size_bytes: int) -> str | None:
        """Return the base's prompt for the sample; Ollama loads the base for it only if its description changed."""
        if self._base_prompt is None or self._base_prompt[0] != base:
            self._base_prompt = base, await self._ollama.rendered(self.base_model, size_bytes)
        return self._base_prompt[1]


def _demand_room(base: ModelDescription, name: str, size_bytes: int) -> None:
    """Raise EngineError if Ollama is on this machine, and its disk has no room for a merged model."""
    folder = next((path.parent for path in base.weights if path.is_absolute() and path.exists()), None)
    if folder is None:
        return
    free = shutil.disk_usage(folder).free
    if free < size_bytes + SPARE_DISK_BYTES:
        raise EngineError(
            f"{name} needs {size_bytes / _GB:.1f} GB of {folder}, where Ollama keeps its models, and "
            f"{SPARE_DISK_BYTES / _GB:.1f} GB to spare; {free / _GB:.1f} GB are free: make room there"
        )
