"""A user's own llama.cpp server in router mode: each version is a section of its preset and a process."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from typing import Any

from burnish.adapters.errors import EngineError, EngineRefused
from burnish.adapters.hosts import llamacpp_preset
from burnish.adapters.hosts.base import HostLimits
from burnish.adapters.hosts.converted import ensure_converted
from burnish.adapters.hosts.user_engine import MAX_RANK, ConvertingHost, NamedModelHost
from burnish.adapters.manifest import AdapterVersion

# The router's own default (--models-max).
MAX_RESIDENT = 4
# The small model takes one to three seconds, a big one on a slow disk minutes.
LOAD_TIMEOUT_S = 300.0
# The router gives a process 10 s to end its streams, then kills it; a reload waits for that.
UNLOAD_TIMEOUT_S = 30.0
POLL_S = 0.1

_RUNNING = frozenset({"loading", "loaded", "sleeping"})
# A sleeping model wakes when it is asked.
_SERVING = frozenset({"loaded", "sleeping"})


class LlamaCppHost(NamedModelHost, ConvertingHost):
    """AdapterHost over a running ``llama-server --models-preset``. Serves ``<base>`` and ``<base>@v<n>-<content>``.

    Other models of the server are left alone; only sections that burnish added are removed.
    """

    engine = "llama-server"
    remedy = "Update llama.cpp, and start it with --cache-ram 0"
    limits = HostLimits(max_rank=MAX_RANK, max_resident=MAX_RESIDENT, base_stays=True)

    def __init__(self, url: str, *, preset: Path, **own: Any) -> None:
        """Send nothing yet. ``preset``: the file that the server was started with; ``base_model``: the base's section.

        The server must be able to read ``state_dir``. See ConvertingHost for the rest.
        """
        super().__init__(url, **own)
        self._preset = preset

    async def check(self) -> None:
        """Check that it is a router, and that its preset has the base and can be written."""
        await self._models(reload=True)
        await asyncio.to_thread(llamacpp_preset.edit, self._preset, self._demand_base)

    def _demand_base(self, text: str) -> str:
        llamacpp_preset.options(text, self.base_model)
        return text

    async def _provide(self, version: AdapterVersion | None, name: str) -> None:
        status = (await self._models()).get(name, {})
        if status.get("value") not in _SERVING:
            await (self._load_version(version, name) if version else self._start(name))

    async def _serving(self) -> set[str]:
        return {name for name, status in (await self._models()).items() if status.get("value") in _SERVING}

    async def _load_version(self, version: AdapterVersion, name: str) -> None:
        target = self._converted(version)
        await ensure_converted(version, self._base_path, target)
        try:
            await asyncio.to_thread(
                llamacpp_preset.edit,
                self._preset,
                lambda text: llamacpp_preset.with_version(text, name, self.base_model, target),
            )
            if name not in await self._models(reload=True):
                raise EngineError(
                    f"{self._api.url} doesn't read the preset {self._preset}; {self._how_to_start()}"
                )
            await self._start(name)
        except BaseException:  # also if cancelled: nothing may stay loaded
            target.unlink(missing_ok=True)  # if it was damaged, the next load converts again
            await asyncio.shield(self._drop_quietly(name))
            raise

    async def _start(self, name: str) -> None:
        """Load a model that the router knows, and wait until it is up."""
        await self._check_room(name)
        try:
            await self._api.ask("POST", "/models/load", {"model": name}, timeout_s=UNLOAD_TIMEOUT_S)
        except EngineRefused as error:
            if error.status == HTTPStatus.NOT_FOUND:
                raise EngineError(f"{self._api.url} has no model {name!r}; {self._how_to_start()}") from error
            if "already" not in error.detail:  # a request has just woken it
                raise
        deadline = time.monotonic() + LOAD_TIMEOUT_S
        while time.monotonic() < deadline:
            status = (await self._models()).get(name, {})
            if status.get("value") in _SERVING:
                return
            if status.get("failed") or status.get("value") not in _RUNNING:
                raise EngineError(
                    f"llama-server could not load {name} (its process ended with status "
                    f"{status.get('exit_code', 'unknown')}); its log says why"
                )
            await asyncio.sleep(POLL_S)
        raise EngineError(f"llama-server did not load {name} within {LOAD_TIMEOUT_S:g} s; its log says why")

    async def _check_room(self, name: str) -> None:
        """Refuse a load for which the router would end its least recently used model, maybe the live one."""
        properties = await self._api.ask("GET", "/props")
        most = int(properties.get("max_instances") or 0) if isinstance(properties, dict) else 0
        models = await self._models()
        running = sorted(model for model, status in models.items() if status.get("value") in _RUNNING)
        if most and name not in running and len(running) >= most:
            raise EngineError(
                f"llama-server runs {len(running)} models ({', '.join(running)}), and would end one of them for "
                f"{name}; start it with a larger --models-max (0 = no limit), or unload one"
            )

    async def _models(self, *, reload: bool = False) -> dict[str, dict[str, Any]]:
        """Return name → status of every model. Raises EngineError, also if this isn't a router."""
        try:
            path = "/models?reload=1" if reload else "/models"
            answer = await self._api.ask("GET", path, timeout_s=UNLOAD_TIMEOUT_S)
            return {model["id"]: dict(model["status"]) for model in answer["data"]}
        except (KeyError, TypeError, ValueError) as error:
            raise EngineError(
                f"{self._api.url} isn't a llama-server in router mode; {self._how_to_start()}"
            ) from error

    async def _drop(self, name: str) -> None:
        """End a version's process, wait for its end, then take its section out."""
        models = await self._models()
        if models.get(name, {}).get("value") in _RUNNING:
            try:
                await self._api.ask("POST", "/models/unload", {"model": name})
            except EngineRefused as error:
                if "not running" not in error.detail and "not found" not in error.detail:
                    raise
            await self._wait_ended(name)
        if name in models or name in llamacpp_preset.sections(self._preset):
            await self._remove_section(name)
            await self._models(reload=True)

    async def _wait_ended(self, name: str) -> None:
        deadline = time.monotonic() + UNLOAD_TIMEOUT_S
        while (await self._models()).get(name, {}).get("value") in _RUNNING:
            if time.monotonic() > deadline:
                raise EngineError(f"llama-server did not unload {name} within {UNLOAD_TIMEOUT_S:g} s")
            await asyncio.sleep(POLL_S)

    async def _drop_quietly(self, name: str) -> None:
        """Clean up after an error; the caller must see that one, not another."""
        try:
            await self._drop(name)
        except EngineError:
            with suppress(EngineError):  # the server is gone, so only the section is left
                await self._remove_section(name)

    async def _remove_section(self, name: str) -> None:
        await asyncio.to_thread(
            llamacpp_preset.edit, self._preset, lambda text: llamacpp_preset.without_version(text, name)
        )

    def _how_to_start(self) -> str:
        return (
            f"start it with: llama-server --models-preset {self._preset.absolute()} --models-max 0 --cache-ram 0 "
            "(--cache-ram 0, because llama.cpp's prompt cache mixes up adapters and may take gigabytes a version)"
        )
