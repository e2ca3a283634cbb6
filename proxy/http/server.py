"""A uvicorn server that stops when it is told to. uvicorn itself looks ten times a second whether it was."""

from __future__ import annotations

import asyncio
import logging
import socket

import uvicorn

logger = logging.getLogger(__name__)

POLL_S = 0.01


class Server(uvicorn.Server):
    """Serves until ``should_exit`` is set, by a signal or by anybody in the thread of its event loop."""

    def __init__(self, config: uvicorn.Config) -> None:
        self.ready = asyncio.Event()
        """Set once it accepts connections."""
        self._exit = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        super().__init__(config)

    @property
    def should_exit(self) -> bool:
        return self._should_exit

    @should_exit.setter
    def should_exit(self, value: bool) -> None:
        self._should_exit = value
        if value and self._loop:
            # From a signal handler, nothing else wakes the loop.
            self._loop.call_soon_threadsafe(self._exit.set)

    async def main_loop(self) -> None:
        """Wait for the end. One tick is enough: uvicorn makes its own headers there, and without a date they stay."""
        self._loop = asyncio.get_running_loop()
        self.ready.set()
        if not await self.on_tick(0):
            await self._exit.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Refuse new connections, and wait for the requests under way, as long as the configuration allows."""
        for server in self.servers:
            server.close()
        for each in sockets or []:
            each.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        try:
            async with asyncio.timeout(self.config.timeout_graceful_shutdown):
                while self._under_way() and not self.force_exit:  # noqa: ASYNC110  (uvicorn has no event)
                    await asyncio.sleep(POLL_S)
                for server in self.servers:
                    await server.wait_closed()
        except TimeoutError:
            logger.error(
                "%s requests were still under way when burnish stopped", len(self.server_state.tasks)
            )
            for task in self.server_state.tasks:
                task.cancel(msg="burnish stops")

    def _under_way(self) -> bool:
        return bool(self.server_state.connections or self.server_state.tasks)
