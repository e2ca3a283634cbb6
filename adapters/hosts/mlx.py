"""A user's own mlx_lm.server: each request names its adapter, and one adapter at a time is in memory.

From mlx-lm 0.32 (server.py), and tried:

- The member ``adapters`` of a body names a directory. It counts only if ``model`` is a path; beside "default_model" it
  is silently ignored. So every endpoint has the path, and a version that answers exactly like the base is refused.
- A request for another adapter than the one in memory waits until all running requests have ended; then the model is
  loaded again. No answer mixes two versions, and no version needs to be unloaded. But alternating requests to two
  versions cost a load each.
- Prompts are cached by the adapter's path. So the name of a converted version holds a digest of its weights.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from functools import lru_cache
from pathlib import Path
from typing import Any

from burnish.adapters.convert.mlx import BASE_CONFIG, WEIGHTS, MlxBase, read_base, to_mlx
from burnish.adapters.convert.room import writing
from burnish.adapters.errors import EngineError, EngineRefused, ProbeFailed
from burnish.adapters.hosts.api import LIKELIEST
from burnish.adapters.hosts.base import Continuation, Endpoint, HostLimits
from burnish.adapters.hosts.converted import check_base
from burnish.adapters.hosts.user_engine import MAX_RANK, ConvertingHost
from burnish.adapters.manifest import BASE_VERSION, AdapterVersion, Probe
from burnish.system.threads import in_one_thread

# Live, candidate, and two that drain after quick swaps; on the disk they cost little.
MAX_RESIDENT = 4
# Running requests end first, then gigabytes are read.
PROBE_TIMEOUT_S = 300.0
# A path that no machine has.
NOWHERE = "/nonexistent/burnish-check"

# Such requests are served alone: rounding in a batch must not look like an adapter.
_ASKING: dict[str, Any] = {"logprobs": True, "top_logprobs": LIKELIEST, "seed": 0}


class MlxHost(ConvertingHost):
    """AdapterHost over a running mlx_lm.server on this machine, which reads converted versions from ``state_dir``."""

    engine = "MLX"
    # The base is loaded when it is asked for, and costs nothing until then.
    limits = HostLimits(max_rank=MAX_RANK, max_resident=MAX_RESIDENT, base_stays=True, keeps=True)

    def __init__(self, url: str, *, base_path: Path, **own: Any) -> None:
        """Send nothing yet. ``base_path``: the directory that the server was started with. See ConvertingHost."""
        super().__init__(url, base_model=str(base_path), base_path=base_path, **own)
        self.remedy = f"Update it (pip install -U mlx-lm), and {self._advice()}"
        for scrap in self._state.glob(".*.partial"):
            shutil.rmtree(scrap, ignore_errors=True)

    async def check(self) -> None:
        """Name an adapter that can't exist, and check that the server looks for it."""
        await self._demand_base()
        body = {"model": self.base_model, "adapters": NOWHERE, "prompt": "Hello", "max_tokens": 1}
        try:
            await self._api.ask("POST", "/v1/completions", body, timeout_s=PROBE_TIMEOUT_S)
        except EngineRefused as error:
            if NOWHERE not in error.detail:
                raise EngineError(
                    f"MLX at {self._api.url} cannot load {self.base_model} ({error.detail}); {self._advice()}"
                ) from error
        else:
            raise EngineError(
                f"MLX at {self._api.url} ignores `adapters` in a request; update it (pip install -U mlx-lm), and "
                f"{self._advice()}"
            )

    async def load(self, version: AdapterVersion | None) -> Endpoint:
        """Convert a version if need be; the server reads it at the first request. See AdapterHost.load."""
        async with self._lock:
            base = await self._demand_base()
            if version is None:
                return self._naming(None)
            check_base(version, self.base_digest, self.base_model)
            target = self._converted(version)
            with writing(f"{version.served_name} for MLX into {target.parent}"):
                if not target.exists():
                    await in_one_thread(to_mlx, version.path, base, target)
            return self._naming(version)

    async def unload(self, version: int) -> None:
        """Delete a version's converted files; ignore unknown ones and the base."""
        async with self._lock:
            for path in self._state.absolute().glob(f"v{version:04d}-*.mlx"):
                # Renamed first: half a directory must not look like a version.
                await asyncio.to_thread(
                    lambda p: shutil.rmtree(p.rename(p.with_name(f".{p.name}.partial"))), path
                )

    async def served(self) -> dict[int, Endpoint]:
        """Return the base and the converted versions, which a request can name; none if the server is down."""
        try:
            await self._demand_up()
        except EngineError:
            return {}
        converted = [version for version in self._versions() if (self._converted(version) / WEIGHTS).exists()]
        return {BASE_VERSION: self._naming(None)} | {
            version.number: self._naming(version) for version in converted
        }

    async def continuation(self, endpoint: Endpoint, probe: Probe, tokens: int) -> Continuation:
        """Go on with a text: this server takes no ids. The model may have to be read first."""
        try:
            return await self._api.continuation(endpoint, probe.text, tokens, _ASKING, PROBE_TIMEOUT_S)
        except EngineRefused as error:
            if "does not exist" not in error.detail:
                raise
            raise ProbeFailed(f"{error}; it must run on this machine, as the same user") from error

    async def _demand_up(self) -> None:
        try:
            await self._api.ask("GET", "/health")
        except EngineRefused as error:
            raise EngineError(
                f"MLX at {self._api.url} is not healthy ({error.detail}); its log says why. {self._advice()}"
            ) from error

    async def _demand_base(self) -> MlxBase:
        """Check that the server is up, and that it reads the base correctly. Raises EngineError."""
        await self._demand_up()
        config = self._base_path / BASE_CONFIG
        mtime_ns = config.stat().st_mtime_ns if config.exists() else 0
        base = await asyncio.to_thread(_layout, self._base_path, mtime_ns)
        if base.misread:
            raise EngineError(
                f"{config} has {', '.join(base.misread)} in rope_parameters only, and mlx-lm doesn't look there: its "
                f"answers would be wrong. Add {json.dumps(base.misread)[1:-1]} to the top level of that file, and "
                f"{self._advice()}"
            )
        return base

    def _advice(self) -> str:
        return f"start it with: mlx_lm.server --model {self.base_model}"

    def _converted(self, version: AdapterVersion) -> Path:
        return super()._converted(version).with_suffix(".mlx")

    def _naming(self, version: AdapterVersion | None) -> Endpoint:
        number, adapters = (
            (version.number, str(self._converted(version))) if version else (BASE_VERSION, None)
        )
        # Also for the base: null replaces the caller's value.
        return Endpoint(self._api.url, self.base_model, number, self._api.api_key, (("adapters", adapters),))


@lru_cache(maxsize=2)
def _layout(base: Path, _changed_ns: int) -> MlxBase:
    """Read a base once, because it may have many files."""
    return read_base(base)
