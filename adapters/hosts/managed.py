"""An engine that burnish starts: waits until it is warm, starts it again when it dies, and ends it.

To the rest of burnish it is an engine like one that the user runs. Its address stays the same, so after a restart
reconciling finds it there and loads the live version again.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from burnish.adapters import durable
from burnish.adapters.errors import EngineError
from burnish.adapters.hosts import lifeline
from burnish.adapters.hosts.api import EngineApi
from burnish.adapters.hosts.child_log import begin, last_lines, meaning, open_log, tail, trim
from burnish.adapters.hosts.converted import open_state
from burnish.adapters.hosts.recipes import Recipe

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
TRIM_EVERY_S = 60.0
# A port can be taken between our look and the engine's start.
PORT_TRIES = 3
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
        """Return what there is to know: for `burnish status`."""
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
        for last in (False, False, True):
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
            while (status := await self._process.ended(TRIM_EVERY_S)) is None:
                trim(self._log)
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
        began = told = time.monotonic()
        try:
            while not await self._is_warm(api):
                if (status := await process.ended(POLL_S)) is not None:
                    raise EngineError(f"{name} died while it started ({meaning(status)}). {tail(self._log)}")
                now = time.monotonic()
                if now - began > START_LIMIT_S:
                    raise EngineError(f"{name} wasn't ready within {START_LIMIT_S:g} s. {tail(self._log)}")
                if now - told > PROGRESS_EVERY_S:
                    told = now
                    words = "; ".join(last_lines(self._log, 1))
                    logger.info("%s is starting, %.0f s so far: %s", name, now - began, words)
        finally:
            await api.close()

    async def _is_warm(self, api: EngineApi) -> bool:
        try:
            answer = await api.ask("GET", self.recipe.ready)
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


class _Process:
    """The engine behind its lifeline."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.pid = 0
        """The engine's own."""
        self._status: asyncio.Task[int] | None = None

    @classmethod
    async def start(cls, recipe: Recipe, port: int, log: Path) -> _Process:
        """Raises EngineError if the program can't be run."""
        with open_log(log) as output:
            begin(output, recipe.command(port))
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-S", "-P", "-E", str(Path(lifeline.__file__)), *recipe.command(port)),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=output,
                env=dict(recipe.environment),
            )
        started = cls(process)
        try:
            line = await started._line()
            if "pid" not in line:
                raise EngineError(
                    f"{recipe.program[0]} can't be run: {line.get('error', 'burnish has no process left')}"
                )
            started.pid = line["pid"]
            started._status = asyncio.get_running_loop().create_task(started._wait())
        except BaseException:
            await started.end()
            raise
        return started

    async def ended(self, within_s: float) -> int | None:
        """Wait for the engine's end; return its status, None if it still runs. Negative: the signal."""
        assert self._status
        done, _ = await asyncio.wait({self._status}, timeout=within_s)
        return self._status.result() if done else None

    async def end(self) -> None:
        """Let go of the lifeline, and wait until the engine and its helpers are gone."""
        assert self._process.stdin
        self._process.stdin.close()
        try:
            async with asyncio.timeout(lifeline.GRACE_S + END_LIMIT_S):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            self._kill_group()
        if self._status:
            await self._status
        await self._process.communicate()  # also closes its pipes

    async def _wait(self) -> int:
        line = await self._line()
        if "status" in line:
            return int(line["status"])
        self._kill_group()  # the lifeline itself was killed
        return -int(signal.SIGKILL)

    async def _line(self) -> dict[str, Any]:
        assert self._process.stdout
        found: dict[str, Any] = json.loads(await self._process.stdout.readline() or b"{}")
        return found

    def _kill_group(self) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)


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
