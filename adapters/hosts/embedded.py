"""The embedded engine: llama.cpp, with one child process a version on the same memory-mapped base weights."""

from __future__ import annotations

import asyncio
import secrets
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from burnish.adapters import catalogue, errors
from burnish.adapters.errors import EngineError
from burnish.adapters.hosts.api import EngineApi
from burnish.adapters.hosts.base import Continuation, Endpoint, HostLimits
from burnish.adapters.hosts.context import MAX_RESIDENT, window
from burnish.adapters.hosts.converted import check_base, converted_path, forget_converted, open_state
from burnish.adapters.hosts.embedded_child import EngineSettings
from burnish.adapters.hosts.fetch import file_digest
from burnish.adapters.hosts.user_engine import ASKING, MAX_RANK
from burnish.adapters.manifest import BASE_VERSION, AdapterVersion, Probe
from burnish.system.child import Child, ChildError
from burnish.system.child_log import tail
from burnish.system.memory import available_bytes
from burnish.system.parent import for_child
from burnish.system.threads import cores

# A model below this size repeats itself until the window is full, more often than a larger one.
SMALL_BYTES = 400_000_000
LONGEST_ANSWER = 512
# Beyond this, more threads wait for memory rather than compute.
MAX_THREADS = 8
# Each request says it: one that doesn't may get what the request before it said.
ADAPTER_ON, ADAPTER_OFF = ((("lora", [{"id": 0, "scale": scale}]),) for scale in (1.0, 0.0))
# An adapter's child is up in about a second; a big model on a slow disk takes a while, but not minutes.
START_TIMEOUT_S = 120.0


async def start_engine(settings: EngineSettings, log: Path) -> tuple[Child, str]:
    """Start a child that serves; return it and its URL. Raises EngineError, CorruptAdapter, IncompatibleAdapter."""
    command = (sys.executable, "-m", "burnish.adapters.hosts.embedded_child")
    child = await Child.start(command, log=log, env=for_child())
    try:
        answer = await child.ask(asdict(settings), START_TIMEOUT_S)
    except ChildError as error:
        raise EngineError(f"while it started, the engine {error}") from error
    if "url" in answer:
        return child, answer["url"]
    await child.end()
    kind, message = getattr(errors, answer["error"]), answer["message"]
    raise kind(f"{message}. {tail(log)}" if kind is EngineError else message)


@dataclass(frozen=True, slots=True)
class _Engine:
    process: Child
    endpoint: Endpoint
    api: EngineApi

    async def stop(self) -> None:
        await self.process.end()  # it has nothing to save
        await self.api.close()  # last, because a request to a child that still runs opens it again


class EmbeddedHost:
    """AdapterHost over llama.cpp children. Serves ``<base_model>`` and ``<base_model>@v<n>``."""

    engine = "the embedded engine"
    remedy = "Install burnish again, with the engine that it names (scripts/install)"

    def __init__(
        self,
        model_path: Path,
        *,
        base_model: str,
        state_dir: Path,
        threads: int | None = None,
        context: int | None = None,
        parallel: int | None = None,
    ) -> None:
        """Start nothing yet.

        ``state_dir`` (made 0700) keeps converted adapters and the children's logs. ``threads``: of each
        child, None = half of the cores. ``context`` and ``parallel``: see ``Window``, None = by the free memory.
        Raises EngineError when the model file cannot be read, or when the window is too large.
        """
        self.base_model = base_model
        self.base_digest = file_digest(model_path)
        self._window = window(
            model_path, context, parallel, children=MAX_RESIDENT, free_bytes=available_bytes()
        )
        listed = catalogue.find(base_model)
        self._sampling = listed.sampling if listed else {}
        longest = listed.max_tokens if listed else None
        if longest is None and model_path.stat().st_size < SMALL_BYTES:
            longest = LONGEST_ANSWER
        self.limits = HostLimits(
            max_rank=MAX_RANK,
            max_resident=MAX_RESIDENT,
            window=self._window,
            longest_answer=longest,
        )
        self._model = model_path
        self._state = state_dir
        self._threads = threads or default_threads()
        self._children: dict[int, _Engine] = {}
        self._lock = asyncio.Lock()
        open_state(state_dir)

    async def check(self) -> None:
        return  # we start it ourselves, with the right options

    async def load(self, version: AdapterVersion | None) -> Endpoint:
        """Start a child for a version (None: the base model), unless one is up; see AdapterHost.load."""
        number = version.number if version else BASE_VERSION
        async with self._lock:
            child = self._children.get(number)
            if child and await self._answers(child):
                return child.endpoint
            for loaded, engine in list(self._children.items()):
                if loaded == number or not engine.process.alive:
                    await engine.stop()
                    del self._children[loaded]
            if len(self._children) >= MAX_RESIDENT:
                raise EngineError(
                    f"{MAX_RESIDENT} versions are loaded already ({sorted(self._children)}); try again when "
                    "the requests on an old one have ended"
                )
            if version:
                check_base(version, self.base_digest, self._model.name)
            self._children[number] = child = await self._start(version)
            return child.endpoint

    async def unload(self, version: int) -> None:
        async with self._lock:
            child = self._children.get(version)
            if child:
                await child.stop()  # if this is cancelled, the child stays listed and is stopped later
                del self._children[version]

    async def served(self) -> dict[int, Endpoint]:
        """Ask every child; leave out those that are dead or don't answer with their own name."""
        children = dict(self._children)
        answers = await asyncio.gather(*(self._answers(child) for child in children.values()))
        return {n: child.endpoint for (n, child), up in zip(children.items(), answers, strict=True) if up}

    async def forget(self, version: AdapterVersion) -> None:
        forget_converted(self._state, version)

    async def base(self, endpoint: Endpoint) -> Endpoint:
        """Return the child of a version, with its adapter off."""
        return replace(endpoint, fields=endpoint.without_adapter or endpoint.fields)

    async def continuation(self, endpoint: Endpoint, probe: Probe, tokens: int) -> Continuation:
        api = EngineApi(endpoint.url, endpoint.api_key)
        try:
            return await api.continuation(endpoint, list(probe.ids) or probe.text, tokens, ASKING)
        finally:
            await api.close()

    async def close(self) -> None:
        async with self._lock:
            for child in self._children.values():
                await child.stop()
            self._children.clear()

    def processes(self) -> dict[int, int]:
        """Return version → process ID of its child."""
        return {version: child.process.pid for version, child in self._children.items()}

    async def _start(self, version: AdapterVersion | None) -> _Engine:
        name, number = (version.served_name, version.number) if version else (self.base_model, BASE_VERSION)
        converted = converted_path(self._state, version, self.base_digest) if version else None
        key = secrets.token_urlsafe(32)
        settings = EngineSettings(
            model=str(self._model.absolute()),
            name=name,
            api_key=key,
            threads=self._threads,
            context=self._window.context,
            parallel=self._window.parallel,
            adapter=str(version.path.absolute()) if version else None,
            converted=str(converted) if converted else None,
            sampling=self._sampling,
        )
        process, url = await start_engine(settings, self._state / f"engine-v{number:04d}.log")
        endpoint = Endpoint(url, name, number, key)
        if version:
            endpoint = replace(endpoint, fields=ADAPTER_ON, without_adapter=ADAPTER_OFF)
        return _Engine(process, endpoint, EngineApi(url, key))

    async def _answers(self, child: _Engine) -> bool:
        if not child.process.alive:
            return False
        try:
            listing = await child.api.ask("GET", "/v1/models")
            return bool(listing["data"][0]["id"] == child.endpoint.model)
        except (EngineError, KeyError, IndexError, TypeError):
            return False


def default_threads() -> int:
    """Return how many threads a child gets: half of the cores.

    ggml's threads wait for each other after every layer, so a thread that shares its core stalls all others. Beside
    one busy process on two cores, 2 threads gave 2 tokens/s and 1 thread 49.
    """
    return max(1, min(cores() // 2, MAX_THREADS))
