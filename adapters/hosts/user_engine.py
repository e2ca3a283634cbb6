"""The common parts of the hosts of engines that the user runs: an API, and versions converted to the engine's form."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from burnish.adapters.errors import EngineError, EngineRefused
from burnish.adapters.hosts.api import LIKELIEST, EngineApi
from burnish.adapters.hosts.base import Continuation, Endpoint, engine_name
from burnish.adapters.hosts.converted import check_base, converted_path, forget_converted, open_state
from burnish.adapters.manifest import BASE_VERSION, AdapterVersion, Probe

ASKING = {"logprobs": LIKELIEST, "return_tokens_as_token_ids": True, "cache_prompt": False}
"""In a body, for likeliest tokens by id; each of vLLM, SGLang and llama.cpp ignores what it doesn't know."""
# llama.cpp and mlx-lm have no limit; a larger adapter is as big as the layers that it changes.
MAX_RANK = 256


class UserEngineHost(ABC):
    """The common part of an AdapterHost over an engine that the user runs; a subclass loads, unloads and lists."""

    engine: str
    remedy: str

    def __init__(
        self,
        url: str,
        *,
        base_model: str,
        base_digest: str,
        versions: Callable[[], Sequence[AdapterVersion]],
        api_key: str | None = None,
    ) -> None:
        """Send nothing yet.

        ``base_model``: the base model's name in the engine; ``base_digest``: "sha256:<hex>" of the weights that
        versions are trained on; ``versions`` returns all that there are.
        """
        self.base_model = base_model
        self.base_digest = base_digest
        self._versions = versions
        self._api = EngineApi(url, api_key)
        self._lock = asyncio.Lock()

    async def forget(self, version: AdapterVersion) -> None:
        return  # the engine reads a version's own directory, and keeps no file besides

    @abstractmethod
    async def load(self, version: AdapterVersion | None) -> Endpoint: ...

    async def base(self, endpoint: Endpoint) -> Endpoint:
        return await self.load(None)

    async def continuation(self, endpoint: Endpoint, probe: Probe, tokens: int) -> Continuation:
        prompt = list(probe.ids) or probe.text
        try:
            return await self._api.continuation(endpoint, prompt, tokens, ASKING)
        except EngineRefused as error:
            if "logprob" not in error.detail:
                raise
            return await self._api.continuation(
                endpoint, prompt, tokens, {}
            )  # its owner allows fewer, or none

    async def close(self) -> None:
        """Close our connections; the user's engine goes on."""
        await self._api.close()

    def _endpoint(self, name: str, number: int) -> Endpoint:
        return Endpoint(self._api.url, name, number, self._api.api_key)


class ConvertingHost(UserEngineHost):
    """The common part of the hosts of engines that read versions in a form of their own: GGUF or MLX."""

    def __init__(self, url: str, *, base_path: Path, state_dir: Path, **own: Any) -> None:
        """Send nothing yet.

        ``base_path``: the base to convert adapters for; ``state_dir``: for converted versions (made 0700). See
        UserEngineHost.
        """
        super().__init__(url, **own)
        self._base_path = base_path
        self._state = state_dir
        open_state(state_dir)

    async def forget(self, version: AdapterVersion) -> None:
        forget_converted(self._state, version)

    def _converted(self, version: AdapterVersion) -> Path:
        return converted_path(self._state, version, self.base_digest)


class NamedModelHost(UserEngineHost):
    """The common part of the hosts of engines in which each version has a name of its own beside the base."""

    def __init__(self, url: str, **own: Any) -> None:
        super().__init__(url, **own)
        self._loaded: dict[int, str] = {}

    async def load(self, version: AdapterVersion | None) -> Endpoint:
        number, name = (version.number, self.name_of(version)) if version else (BASE_VERSION, self.base_model)
        async with self._lock:
            if version:
                check_base(version, self.base_digest, self.base_model)
            await self._provide(version, name)
            self._loaded[number] = name
            return self._endpoint(name, number)

    async def unload(self, version: int) -> None:
        """Free a version's memory; ignore unknown ones and the base."""
        if version == BASE_VERSION:
            return  # the user's own model, which others may use
        async with self._lock:
            names = {self.name_of(adapter) for adapter in self._versions() if adapter.number == version}
            names |= {self._loaded[version]} if version in self._loaded else set()
            for name in sorted(names):
                await self._drop(name)
            self._loaded.pop(version, None)

    async def served(self) -> dict[int, Endpoint]:
        """Ask the engine which of our models it serves; none if it is down."""
        try:
            serving = await self._serving()
        except EngineError:
            return {}
        names = {self.base_model: BASE_VERSION}
        names |= {self.name_of(version): version.number for version in self._versions()}
        return {number: self._endpoint(name, number) for name, number in names.items() if name in serving}

    def name_of(self, version: AdapterVersion) -> str:
        return engine_name(version)

    @abstractmethod
    async def _provide(self, version: AdapterVersion | None, name: str) -> None:
        """Make the engine serve a version (None: the base) under a name, unless it does. Raises as ``load`` does."""

    @abstractmethod
    async def _serving(self) -> set[str]:
        """Return the names of the base and of versions that the engine serves, maybe others. Raises EngineError."""

    @abstractmethod
    async def _drop(self, name: str) -> None:
        """Remove a version, if it is there. Raises EngineError."""
