"""The common part of the hosts of engines that load a LoRA directory under a name: vLLM and SGLang.

The user runs such an engine: it forgets loaded adapters when it restarts, and others may use it, too. So it is asked
each time, and a name counts only with our directory behind it. Nothing is ever reloaded in place: in vLLM that changes
the text of running streams, and answers from a prefix cache of the old weights.
"""

from __future__ import annotations

import json
import re
from abc import abstractmethod
from contextlib import suppress
from http import HTTPStatus
from typing import ClassVar

from burnish.adapters.errors import CorruptAdapter, EngineError, EngineRefused, IncompatibleAdapter
from burnish.adapters.hosts.base import HostLimits
from burnish.adapters.hosts.user_engine import NamedModelHost
from burnish.adapters.manifest import AdapterVersion
from burnish.adapters.weights_file import CONFIG

# vLLM's default for --max-lora-rank; SGLang has none, and our command line for it names this one.
MAX_RANK = 16
# Live, candidate, and two that drain after quick swaps.
MAX_RESIDENT = 4
# Milliseconds for a small adapter, but a big one may come from a network file system.
LOAD_TIMEOUT_S = 120.0
# A path that no machine has.
NOWHERE = "/nonexistent/burnish-check"

# Whole words, because the engines' errors hold paths, too.
_RANK = re.compile(r"\brank\b|max[-_]lora[-_]rank", re.I)
_UNSUPPORTED = re.compile(
    r"\bDoRA\b|modules_to_save|does not (yet )?support|only supports|not supported|incompatible", re.I
)


class NamedLoraHost(NamedModelHost):
    """AdapterHost over a running engine that takes ``{"lora_name", "lora_path"}``; a subclass says how exactly."""

    load_route: ClassVar[str]
    unload_route: ClassVar[str]

    limits = HostLimits(max_rank=MAX_RANK, max_resident=MAX_RESIDENT, base_stays=True, keeps=True)

    async def check(self) -> None:
        """Load an adapter that can't exist, and check that the engine finds nothing else wrong."""
        await self._demand_base()
        try:
            await self._api.ask("POST", self.load_route, {"lora_name": "burnish-check", "lora_path": NOWHERE})
        except EngineRefused as error:
            if self.disabled(error):
                raise self.not_enabled(self.limits.max_rank) from error

    async def _provide(self, version: AdapterVersion | None, name: str) -> None:
        if version is None:
            await self._demand_base()
            return
        rank = self._demand_fitting(version)
        if name not in await self._serving():
            await self._load(version, name, rank)

    @abstractmethod
    def command(self, rank: int) -> str:
        """Return the command line that starts the engine so that it takes adapters of this rank."""

    @abstractmethod
    def disabled(self, error: EngineRefused) -> bool:
        """Recognise the refusal of an engine that was started without adapters."""

    def not_enabled(self, rank: int) -> EngineError:
        return EngineError(
            f"{self.engine} at {self._api.url} can't load adapters while it runs, as it was started; start it with: "
            f"{self.command(rank)}"
        )

    def explained(self, error: EngineRefused, version: AdapterVersion, rank: int) -> Exception:
        """Turn the engine's refusal to load into an error that says what to do."""
        if self.disabled(error):
            return self.not_enabled(rank)
        too_large = error.status != HTTPStatus.NOT_FOUND and rank > self.limits.max_rank
        if _RANK.search(error.detail) or too_large:
            return IncompatibleAdapter(
                f"{version.served_name} has rank {rank}, and {self.engine} refuses it ({error.detail}); "
                f"start it with: {self.command(rank)}"
            )
        if _UNSUPPORTED.search(error.detail):
            return IncompatibleAdapter(f"{self.engine} cannot take {version.served_name}: {error.detail}")
        return error

    def unseen(self, version: AdapterVersion) -> EngineError:
        """Return the error for an engine that doesn't find the directory of a version."""
        return EngineError(
            f"{self.engine} at {self._api.url} cannot see {version.path.absolute()}: if it runs on another machine or "
            "in a container, mount the adapters' directory there under the same path, readable for its user"
        )

    async def _load(self, version: AdapterVersion, name: str, rank: int) -> None:
        """Load a version and check that the engine lists it; undo that if anything goes wrong."""
        body = {"lora_name": name, "lora_path": str(version.path.absolute())}
        try:
            try:
                await self._api.ask("POST", self.load_route, body, timeout_s=LOAD_TIMEOUT_S)
            except EngineRefused as error:
                # Loaded since we looked, by another proxy or by our own request whose answer was lost.
                already = error.status == HTTPStatus.BAD_REQUEST and "already" in error.detail.lower()
                if not (already and name in await self._serving()):
                    raise self.explained(error, version, rank) from error
            if name not in await self._serving():
                raise EngineError(
                    f"{self.engine} at {self._api.url} answers that it loaded {name}, but does not list it; expected a "
                    "single engine behind the address, of a release that lists adapters"
                )
        except BaseException:
            # After a refusal there is nothing to undo, but an answer may have been lost.
            with suppress(EngineError):
                await self._drop(name)
            raise

    async def _drop(self, name: str) -> None:
        if name not in await self._serving():
            return
        try:
            await self._api.ask("POST", self.unload_route, {"lora_name": name})
        except EngineRefused as error:
            # Unloaded since we looked, by another client or a restart.
            if error.status != HTTPStatus.NOT_FOUND and name in await self._serving():
                raise

    async def _serving(self) -> set[str]:
        """Return the names of the base and of our versions that are loaded from our directories."""
        listing = await self._listing()
        paths = {self.name_of(version): str(version.path.absolute()) for version in self._versions()}
        loaded = {name for name, path in paths.items() if listing.get(name) == path}
        return loaded | {self.base_model} if self.base_model in listing else set()

    async def _listing(self) -> dict[str, str]:
        """Return name → ``root`` of every model that the engine serves now. Raises EngineError."""
        answer = await self._api.ask("GET", "/v1/models")
        try:
            return {str(card["id"]): str(card.get("root")) for card in answer["data"]}
        except (KeyError, TypeError, AttributeError) as error:
            raise EngineError(
                f"{self._api.url}/v1/models does not answer as {self.engine} does; check the URL"
            ) from error

    async def _demand_base(self) -> None:
        listing = await self._listing()
        if self.base_model not in listing:
            raise EngineError(
                f"{self.engine} at {self._api.url} serves {', '.join(listing) or 'nothing'}, not "
                f"{self.base_model}; start it with --served-model-name {self.base_model}"
            )

    def _demand_fitting(self, version: AdapterVersion) -> int:
        """Return a version's rank. Raises IncompatibleAdapter if no setting of the engine could serve it."""
        try:
            config = json.loads((version.path / CONFIG).read_bytes())
            rank = max([int(config["r"]), *map(int, (config.get("rank_pattern") or {}).values())])
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise CorruptAdapter(f"{version.path / CONFIG} cannot be read: {error}") from error
        for key in ("use_dora", "modules_to_save"):
            # The engines refuse these, too, but only with an internal error.
            if config.get(key):
                raise IncompatibleAdapter(
                    f"{version.served_name} has {key} set, which {self.engine} cannot serve; train without it"
                )
        return rank
