"""A user's own llama-server with one model: it takes adapters at its start, and each request names one of them."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from burnish.adapters.errors import EngineError, NeedsRestart
from burnish.adapters.hosts.base import Endpoint, HostLimits
from burnish.adapters.hosts.converted import check_base, ensure_converted
from burnish.adapters.hosts.user_engine import MAX_RANK, ConvertingHost
from burnish.adapters.manifest import BASE_VERSION, AdapterVersion

# As many as one line of a terminal holds; the server itself has no limit.
MAX_RESIDENT = 8


class LlamaCppGivenHost(ConvertingHost):
    """AdapterHost over a ``llama-server`` that was started with ``--lora-scaled FILE:0`` for each version to serve.

    Any other version is converted, and an error names the options for a restart of the server. Every request sets the
    scale of every adapter. A request without scales would reuse the cache of the request before it, even if that had
    another adapter. So other clients should not use such a server directly.
    """

    engine = "llama-server"
    remedy = "Update llama.cpp, and start it with --cache-ram 0"
    limits = HostLimits(max_rank=MAX_RANK, max_resident=MAX_RESIDENT, base_stays=True, keeps=True)

    def __init__(self, url: str, **own: Any) -> None:
        """Send nothing yet; the server must be able to read ``state_dir``. See ConvertingHost."""
        super().__init__(url, **own)
        self._unloaded: set[int] = set()

    async def check(self) -> None:
        """Check that it lists its adapters; raise EngineError in any case, which recommends router mode."""
        await self._given()
        raise EngineError(
            f"llama-server at {self._api.url} takes an adapter only when it starts, so each new version needs a "
            "restart by hand. In router mode none is needed: llama-server --models-preset models.ini --models-max 0 "
            "--cache-ram 0, and models_preset set to that file"
        )

    async def load(self, version: AdapterVersion | None) -> Endpoint:
        """Find a version among the adapters that the server was given; see AdapterHost.load."""
        adapters = await self._given()
        self._unloaded.discard(version.number if version else BASE_VERSION)
        if version is None:
            return self._at_scale(BASE_VERSION, adapters, None)
        check_base(version, self.base_digest, self.base_model)
        file = self._converted(version)
        await ensure_converted(version, self._base_path, file)
        if str(file) not in adapters:
            raise NeedsRestart(
                f"llama-server at {self._api.url} takes an adapter only when it starts: start it again with "
                f"{self._options(file, adapters)}, then ask for {version.served_name} again; or start it in router mode"
            )
        return self._at_scale(version.number, adapters, file)

    async def unload(self, version: int) -> None:
        """Only mark the version: the server can't unload, but it isn't listed as served until it is loaded again."""
        self._unloaded.add(version)

    async def forget(self, version: AdapterVersion) -> None:
        """Delete a version's file, unless the server uses it: a restart with the same options would need it."""
        try:
            adapters = await self._given()
        except EngineError:
            return
        if str(self._converted(version)) not in adapters:
            await super().forget(version)

    async def served(self) -> dict[int, Endpoint]:
        """Ask the server which adapters it has; none if it is down."""
        try:
            adapters = await self._given()
        except EngineError:
            return {}
        endpoints = {
            version.number: self._at_scale(version.number, adapters, self._converted(version))
            for version in self._versions()
            if version.number not in self._unloaded
            and version.manifest.base_digest == self.base_digest
            and str(self._converted(version)) in adapters
        }
        return {BASE_VERSION: self._at_scale(BASE_VERSION, adapters, None)} | endpoints

    async def _given(self) -> dict[str, int]:
        """Return path → number of each adapter that the server was started with. Raises EngineError."""
        answer = await self._api.ask("GET", "/lora-adapters")
        try:
            return {str(adapter["path"]): int(adapter["id"]) for adapter in answer}
        except (KeyError, TypeError, ValueError) as error:
            raise EngineError(
                f"{self._api.url}/lora-adapters does not answer as llama-server does"
            ) from error

    def _at_scale(self, number: int, adapters: dict[str, int], file: Path | None) -> Endpoint:
        scales: list[dict[str, Any]] = [
            {"id": adapters[path], "scale": 1.0 if path == str(file) else 0.0} for path in adapters
        ]
        # Never empty: the server would ignore that, and it may have been restarted with an adapter a moment ago. The
        # number of an adapter that doesn't exist does no harm.
        scales = scales or [{"id": 0, "scale": 0.0}]
        return Endpoint(self._api.url, self.base_model, number, self._api.api_key, (("lora", scales),))

    def _options(self, file: Path, adapters: dict[str, int]) -> str:
        """Return the options that keep our adapters and add a version; those of others aren't named."""
        own_paths = [str(self._converted(version)) for version in self._versions()]
        files = [path for path in adapters if path in own_paths and path != str(file)] + [str(file)]
        # One list, because llama-server warns that of a repeated option only the last counts.
        given_at_0 = ",".join(f"{path}:0" for path in files)
        return f"--lora-scaled {shlex.quote(given_at_0)} --cache-ram 0"
