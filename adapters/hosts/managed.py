"""An engine that burnish starts: waits until it is warm, starts it again when it dies, and ends it.

To the rest of burnish it is an engine like one that the user runs. Its address stays the same, so after a restart
reconciling finds it there and loads the live version again.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from burnish.adapters.errors import EngineError
from burnish.adapters.hosts import lifeline
from burnish.adapters.hosts.api import EngineApi
from burnish.adapters.hosts.converted import open_state
from burnish.adapters.hosts.recipes import Recipe
from burnish.system import durable
from burnish.system.child import Child, ChildError
from burnish.system.child_log import last_lines, meaning, tail

logger = logging.getLogger(__name__)

State = Literal["stopped", "starting", "up", "given up"]

# A model of 100 GB from a slow disk takes half an hour, and vLLM then compiles for minutes.
START_LIMIT_S = 3600.0
POLL_S = 0.25
# A start that takes longer than a person waits in silence is told of.
PROGRESS_EVERY_S = 10.0
# An engine that dies at once dies again, so the pause doubles. It begins anew once the engine has lived so long.
FIRST_PAUSE_S, LIVED_S = 1.0, 60.0
MAX_DEATHS = 5
"""In a row, after which it isn't started again."""
# Beyond the lifeline's own grace.
END_LIMIT_S = 5.0


class ManagedEngine:
    """One engine process with everything that it starts."""

    def __init__(self, recipe: Recipe, log: Path) -> None:
        """Start nothing yet. ``log``: the file for the engine's output; its directory is made (0700)."""
        self.recipe = recipe
        self._log = log
        open_state(log.parent)
        self._port = 0
        self._process: _Process | None = None
        self._state: State = "stopped"
        self._restarts = 0
        self._deaths = 0
        self._fault: str | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def trouble(self) -> str | None:
        """Why the engine doesn't answer; None if it does."""
        return None if self._state == "up" else self._fault

    def status(self) -> dict[str, Any]:
        return {
            "name": self.recipe.name,
            "state": self._state,
            "pid": self._process.pid if self._process else None,
            "restarts": self._restarts,
            "log": str(self._log),
        }

    async def start(self) -> None:
        """Start the engine and wait until it is warm.

        Raises EngineError, which says why and what its log ends with; nothing is left running then, nor if this is
        cancelled.
        """
        for last in (False, False, True):  # a port can be taken between our look and the engine's start
            self._port = self.recipe.fixed_port or _free_port()
            if not _is_free(self._port):
                raise EngineError(
                    f"port {self._port} (engine_args) is taken by another program: stop that one, or leave --port out, "
                    f"and {self.recipe.name} gets a free one"
                )
            try:
                return await self._start()
            except EngineError:
                if last or _is_free(self._port) or self.recipe.fixed_port:
                    raise

    async def supervise(self) -> None:
        """Start the engine again whenever it has died. Returns when that is hopeless."""
        while self._process:
            began = time.monotonic()
            status = await self._process.wait()
            self._state = "starting"
            self._deaths = 1 if time.monotonic() - began > LIVED_S else self._deaths + 1
            self._fault = f"{self.recipe.name} died ({meaning(status)}). {tail(self._log)}"
            logger.error("%s", self._fault)
            await self._end()
            await self._start_again()

    async def close(self) -> None:
        """End the engine, and all that it started."""
        await self._end()
        self._state = "stopped"

    async def _start_again(self) -> None:
        while self._deaths < MAX_DEATHS:
            if self._deaths > 1:
                await asyncio.sleep(FIRST_PAUSE_S * 2 ** (self._deaths - 2))
            try:
                await self._start()
            except EngineError as error:
                self._deaths += 1
                self._fault = str(error)
                logger.error("%s", error)
            else:
                self._restarts += 1
                logger.warning("%s runs again, as process %d", self.recipe.name, self.status()["pid"])
                return
        self._state = "given up"
        self._fault = (
            f"{self._fault}. It died {MAX_DEATHS} times in a row: mend that, then start burnish again"
        )
        logger.error("%s", self._fault)

    async def _start(self) -> None:
        self._state = "starting"
        try:
            if self.recipe.preset:
                durable.replace(self.recipe.preset, self.recipe.preset_text)
            self._process = await _Process.start(self.recipe, self._port, self._log)
            await self._until_warm(self._process)
        except OSError as error:
            raise EngineError(f"{self.recipe.name} can't be started: {error}") from error
        except BaseException:
            await asyncio.shield(self._end())
            raise
        self._state = "up"

    async def _until_warm(self, process: _Process) -> None:
        """Ask until the model is loaded. Raises EngineError."""
        name, api = self.recipe.name, EngineApi(self.url, self.recipe.api_key)
        began = last_report = time.monotonic()
        try:
            while not await self._is_warm(api):
                if not process.child.alive:
                    why = meaning(await process.wait())
                    raise EngineError(f"{name} died while it started ({why}). {tail(self._log)}")
                clock = time.monotonic()
                if clock - began > START_LIMIT_S:
                    raise EngineError(f"{name} wasn't ready within {START_LIMIT_S:g} s. {tail(self._log)}")
                if clock - last_report > PROGRESS_EVERY_S:
                    last_report = clock
                    words = "; ".join(last_lines(self._log, 1))
                    logger.info("%s is starting, %.0f s so far: %s", name, clock - began, words)
                await asyncio.sleep(POLL_S)
        finally:
            await api.close()

    async def _is_warm(self, api: EngineApi) -> bool:
        try:
            answer = await api.ask("GET", self.recipe.health_path)
        except EngineError:
            return False
        try:
            return self.recipe.is_warm(answer)
        except EngineError as error:
            raise EngineError(f"{error}. {tail(self._log)}") from error

    async def _end(self) -> None:
        process, self._process = self._process, None
        if process:
            await process.end()


@dataclass(frozen=True, slots=True)
class _Process:
    """The engine behind its lifeline, which ends as the engine ends."""

    child: Child
    """The lifeline."""
    pid: int
    """The engine's own."""

    @classmethod
    async def start(cls, recipe: Recipe, port: int, log: Path) -> _Process:
        """Raises EngineError if the program can't be run."""
        command = (sys.executable, "-S", "-P", "-E", lifeline.__file__, *recipe.command(port))
        grace_s = lifeline.GRACE_S + END_LIMIT_S
        child = await Child.start(command, log=log, env=dict(recipe.environment), cwd=None, grace_s=grace_s)
        try:
            answer = await child.ask()
        except ChildError as error:
            raise EngineError(f"{recipe.name} {error}") from error
        if "pid" not in answer:
            await child.end()
            raise EngineError(f"{recipe.program[0]} can't be run: {answer['error']}")
        return cls(child, answer["pid"])

    async def wait(self) -> int:
        """Wait for the engine's end; return its status. Negative: the signal."""
        return self._without_helpers(await self.child.wait())

    async def end(self) -> None:
        """Let go of the lifeline, and wait until the engine and its helpers are gone."""
        self._without_helpers(await self.child.end())

    def _without_helpers(self, status: int) -> int:
        if status == -signal.SIGKILL:  # perhaps the lifeline itself was killed, which ends them otherwise
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
        return status


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
