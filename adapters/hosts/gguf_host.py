"""The common part of the hosts of engines that read GGUF: a base file, converted versions, an API."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

from burnish.adapters.hosts.api import EngineApi
from burnish.adapters.hosts.base import Endpoint
from burnish.adapters.hosts.converted import forget_converted, open_state
from burnish.adapters.manifest import AdapterVersion

# llama.cpp, which all of them run, has no limit; a larger adapter is as big as the layers that it changes.
MAX_RANK = 256


class GgufHost:
    """The common part of an AdapterHost over llama-server or Ollama; a subclass loads, unloads and lists."""

    def __init__(
        self,
        url: str,
        *,
        base_model: str,
        base_digest: str,
        base_path: Path,
        state_dir: Path,
        versions: Callable[[], Sequence[AdapterVersion]],
        api_key: str | None = None,
    ) -> None:
        """Send nothing yet.

        ``base_model``: the base's name in the engine; ``base_digest``: "sha256:<hex>" of the weights that versions are
        trained on; ``base_path``: the GGUF to convert adapters for; ``state_dir``: for converted versions (made 0700);
        ``versions`` returns all that there are.
        """
        self.base_model = base_model
        self.base_digest = base_digest
        self._base_path = base_path
        self._state = state_dir
        self._versions = versions
        self._api = EngineApi(url, api_key)
        self._lock = asyncio.Lock()
        open_state(state_dir)

    async def forget(self, version: AdapterVersion) -> None:
        """Delete the converted version."""
        forget_converted(self._state, version)

    async def probe(self, endpoint: Endpoint) -> None:
        """Generate a few tokens for real. Raises ProbeFailed."""
        await self._api.probe(endpoint)

    async def close(self) -> None:
        """Close our connections; the user's engine goes on."""
        await self._api.close()
