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
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from burnish.adapters.convert.mlx import BASE_CONFIG, WEIGHTS, MlxBase, read_base, to_mlx
from burnish.adapters.errors import EngineError, EngineRefused, ProbeFailed
from burnish.adapters.hosts.api import EngineApi
from burnish.adapters.hosts.base import Endpoint, Limits
from burnish.adapters.hosts.converted import check_base, converted_path, forget_converted, open_state
from burnish.adapters.manifest import BASE_VERSION, AdapterVersion
from burnish.adapters.threads import in_one_thread

# mlx-lm has no limit; a larger adapter is as big as the layers that it changes.
MAX_RANK = 256
# Live, candidate, and two that drain after quick swaps; on the disk they cost little.
MAX_RESIDENT = 4
# Running requests end first, then gigabytes are read.
PROBE_TIMEOUT_S = 300.0
# A path that no machine has.
NOWHERE = "/nonexistent/burnish-check"

# Enough numbers that even a weak adapter moves one of them by more than bfloat16 rounds; the server's limit is 11.
_PROBE: dict[str, Any] = {
    "prompt": "Hello", "max_tokens": 8, "temperature": 0, "logprobs": True, "top_logprobs": 11,
    "seed": 0,  # such requests are served alone: rounding in a batch must not look like an adapter
}  # fmt: skip

_Logprobs = list[dict[int, float]]


class MlxHost:
    """AdapterHost over a running mlx_lm.server on this machine, which reads converted versions from ``state_dir``."""

    def __init__(
        self,
        url: str,
        *,
        base_path: Path,
        base_digest: str,
        state_dir: Path,
        versions: Callable[[], Sequence[AdapterVersion]],
        api_key: str | None = None,
    ) -> None:
        """Send nothing yet.

        ``base_path``: the directory that the server was started with; ``base_digest``: "sha256:<hex>" of its weights;
        ``state_dir``: for converted versions (made 0700); ``versions`` returns all that there are.
        """
        self.base_model = str(base_path)
        self.base_digest = base_digest
        self._base_path = base_path
        self._state = state_dir
        self._versions = versions
        self._api = EngineApi(url, api_key)
        self._lock = asyncio.Lock()
        self._bare: _Logprobs | None = None
        open_state(state_dir)
        for scrap in state_dir.glob(".*.partial"):
            shutil.rmtree(scrap, ignore_errors=True)

    @property
    def limits(self) -> Limits:
        # The base is loaded when it is asked for, and costs nothing until then.
        return Limits(max_rank=MAX_RANK, max_resident=MAX_RESIDENT, base_stays=True, keeps=True)

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
                return self._endpoint(None)
            check_base(version, self.base_digest, self.base_model)
            target = self._converted(version)
            try:
                if not target.exists():
                    await in_one_thread(to_mlx, version.path, base, target)
            except OSError as error:
                raise EngineError(
                    f"cannot write {version.served_name} for MLX into {target.parent}: "
                    f"{error.strerror or error}; make room there, or check its permissions"
                ) from error
            return self._endpoint(version)

    async def unload(self, version: int) -> None:
        """Delete a version's converted files; ignore unknown ones and the base."""
        async with self._lock:
            for path in self._state.absolute().glob(f"v{version:04d}-*.mlx"):
                # Renamed first: half a directory must not look like a version.
                await asyncio.to_thread(lambda p: shutil.rmtree(p.rename(_scrap(p))), path)

    async def forget(self, version: AdapterVersion) -> None:
        """Delete the converted version, for this engine or an earlier one."""
        forget_converted(self._state, version)

    async def served(self) -> dict[int, Endpoint]:
        """Return the base and the converted versions, which a request can name; none if the server is down."""
        try:
            await self._demand_up()
        except EngineError:
            return {}
        converted = [each for each in self._versions() if (self._converted(each) / WEIGHTS).exists()]
        return {BASE_VERSION: self._endpoint(None)} | {
            each.number: self._endpoint(each) for each in converted
        }

    async def probe(self, endpoint: Endpoint) -> None:
        """Generate a few tokens, and check that an adapter changes them. Raises ProbeFailed."""
        if self._bare is None:  # asked first: the version must stay in memory
            self._bare = await self._sample(self._endpoint(None))
        if endpoint.version != BASE_VERSION and await self._sample(endpoint) == self._bare:
            raise ProbeFailed(
                f"MLX at {self._api.url} answers with v{endpoint.version} exactly as the base model does, so it "
                f"ignores the adapter; update it (pip install -U mlx-lm), and {self._advice()}"
            )

    async def close(self) -> None:
        """Close our connections; the user's server goes on."""
        await self._api.close()

    async def _sample(self, endpoint: Endpoint) -> _Logprobs:
        """Return the likeliest tokens at each place of a greedy answer. Raises ProbeFailed."""
        body = {"model": endpoint.model} | _PROBE | dict(endpoint.fields)
        try:
            answer = await self._api.ask("POST", "/v1/completions", body, timeout_s=PROBE_TIMEOUT_S)
            places = answer["choices"][0]["logprobs"]["content"]
            sampled = [
                {int(top["id"]): float(top["logprob"]) for top in each["top_logprobs"]} for each in places
            ]
        except (EngineError, LookupError, TypeError, ValueError) as error:
            hint = "; it must run on this machine, as the same user" if "does not exist" in str(error) else ""
            raise ProbeFailed(f"MLX can't answer with v{endpoint.version}: {error}{hint}") from error
        if not sampled:
            raise ProbeFailed(f"MLX generates nothing with v{endpoint.version}")
        return sampled

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
        changed = config.stat().st_mtime_ns if config.exists() else 0
        base = await asyncio.to_thread(_layout, self._base_path, changed)
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
        return converted_path(self._state, version, self.base_digest).with_suffix(".mlx")

    def _endpoint(self, version: AdapterVersion | None) -> Endpoint:
        number, adapters = (
            (version.number, str(self._converted(version))) if version else (BASE_VERSION, None)
        )
        # Also for the base: null replaces the caller's value.
        return Endpoint(self._api.url, self.base_model, number, self._api.api_key, (("adapters", adapters),))


def _scrap(path: Path) -> Path:
    return path.with_name(f".{path.name}.partial")


@lru_cache(maxsize=2)
def _layout(base: Path, _changed_ns: int) -> MlxBase:
    """Read a base once, because it may have many files."""
    return read_base(base)
