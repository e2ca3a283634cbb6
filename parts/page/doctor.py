"""``GET /burnish/doctor``: what ``burnish doctor`` finds, for the page's Health view."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from typing import Any, Literal

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from burnish.config.config import Config
from burnish.proxy.described import described, flat, list_of
from burnish.proxy.http.errors import Unavailable
from burnish.proxy.json_http import json_response

LIMIT_S = 60.0
"""It takes a second or two, and asks engines that may be slow."""
KEPT_S = 10.0
"""Several tabs share one check."""

FINDING = flat("Finding", level=Literal["ok", "warn", "fail"], what=str, text=str)


def doctor_route(config: Config) -> Route:
    doctor = _Doctor(config)

    @described(
        "what `burnish doctor` finds: `level` (ok, warn, fail), `what`, `text`",
        flat("Checks", checked_at=float, findings=list_of(FINDING)),
    )
    async def findings(request: Request) -> Response:
        return json_response(await doctor.findings())

    return Route("/burnish/doctor", findings)


class _Doctor:
    """Runs the command in a process of its own, because its checks block and import much. One at a time."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._lock = asyncio.Lock()
        self._last: dict[str, Any] | None = None
        self._again_at = 0.0
        """On the monotonic clock."""

    async def findings(self) -> dict[str, Any]:
        """Return all findings. Raises Unavailable."""
        async with self._lock:
            if self._last is None or time.monotonic() >= self._again_at:
                self._last = {"checked_at": time.time(), "findings": await self._run()}
                self._again_at = time.monotonic() + KEPT_S
            return self._last

    async def _run(self) -> list[dict[str, str]]:
        where = json.loads(await asyncio.to_thread(self._config.server_file.read_bytes))["url"]
        # -P: a folder named burnish where burnish was started is not burnish.
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "burnish", "doctor", "--json", "--url", where),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=os.environ | self._keys(),
        )
        try:
            async with asyncio.timeout(LIMIT_S):
                output, errors = await process.communicate()
        except TimeoutError as error:
            raise Unavailable(
                f"burnish doctor took longer than {LIMIT_S:g} s: run it in a terminal"
            ) from error
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        try:
            found: list[dict[str, str]] = orjson.loads(output)
        except orjson.JSONDecodeError as error:
            said = errors.decode(errors="replace").strip()[-500:]
            raise Unavailable(f"burnish doctor failed, run it in a terminal: {said}") from error
        return found

    def _keys(self) -> dict[str, str]:
        """Return the keys that this burnish takes, wherever they were set."""
        given = {"BURNISH_ADMIN_KEY": self._config.admin_key, "BURNISH_API_KEY": self._config.api_key}
        return {name: key.get_secret_value() for name, key in given.items() if key}
