"""litellm in a process of its own, for upstreams whose URL is ``litellm:PROVIDER/MODEL``.

The process answers chat completions (``litellm_child.py``), and is started again when it dies. burnish holds its socket
all the time. So requests wait meanwhile, and no other user of the machine can take the port and read them.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import secrets
import shlex
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

from pydantic import SecretStr

from burnish.config.config import Config, Local
from burnish.config.settings import ENV_PREFIX
from burnish.config.tables import LITELLM
from burnish.proxy.http.errors import ConfigError
from burnish.system.child import Child, ChildError
from burnish.system.extras import how_to_install, requirements

logger = logging.getLogger(__name__)

EXTRA = "cloud"
PROGRAM = Path(__file__).with_name("litellm_child.py")
# Importing litellm takes three to eight seconds, and longer on a busy machine.
START_LIMIT_S = 120.0
OTHERS_WAIT_S = 15.0
"""For litellm, if other upstreams could answer already."""
LOOK = "import importlib.util, sys; sys.exit(importlib.util.find_spec('litellm') is None)"
LOOK_LIMIT_S = 20.0
PAUSE_S = 2.0
"""After a start that failed."""
BACKLOG = 4096
"""Requests that wait while litellm starts. The system may allow fewer."""
OWN_ENVIRONMENT = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # else each start fetches a list of prices
    "LITELLM_MODE": "PRODUCTION",  # else it reads whatever .env is near
    "REPEATED_STREAMING_CHUNK_LIMIT": "1000000000",  # else it cuts an answer with a hundred equal chunks, such as zeros
}


@dataclass(frozen=True, slots=True)
class ProviderRoute:
    """A provider, or one model of it."""

    provider: str
    """litellm's name, such as "bedrock"."""
    model: str
    """"": requests name the model."""
    names: Sequence[str]
    """Names by which requests ask for it; a star at the end stands for any ending."""
    api_key: str | None = None
    api_base: str | None = None
    token: str = field(default_factory=partial(secrets.token_urlsafe, 32))
    """Requests show by it that they come from burnish, and which route they take."""


@asynccontextmanager
async def with_clouds(config: Config) -> AsyncIterator[Config]:
    """Serve all upstreams that litellm asks; yield a configuration that knows where. Raises ConfigError."""
    if not (routes := _routes(config)):
        yield config
        return
    has_others = len(routes) < 1 + len(config.upstreams)  # the main one, and the further ones
    wait_s = OTHERS_WAIT_S if has_others else math.inf
    log = config.data_dir / "litellm.log"
    async with litellm(list(routes.values()), config.litellm.python, log, wait_s=wait_s) as url:
        yield config.with_local(
            {table: Local(url, SecretStr(route.token)) for table, route in routes.items()}
        )


def check_installed(url: str, python: Path | None) -> None:
    """Raise ConfigError if an interpreter doesn't run or has no litellm. It isn't imported, which takes seconds."""
    try:
        process = subprocess.run([_program(python), "-I", "-c", LOOK], check=False, timeout=LOOK_LIMIT_S)
    except OSError as error:
        raise _not_run(python, error) from error
    except subprocess.TimeoutExpired as error:
        raise ConfigError(f"litellm.python: {python} doesn't answer within {LOOK_LIMIT_S:g} s") from error
    if process.returncode:
        raise _not_installed(url, python)


def _routes(config: Config) -> dict[str | None, ProviderRoute]:
    """Return what litellm serves, by table; None: for the main upstream."""
    routes: dict[str | None, ProviderRoute] = {}
    if config.upstream and config.upstream.startswith(LITELLM):
        provider, _, model = config.upstream.removeprefix(LITELLM).partition("/")
        names = [config.model] if config.model else []
        names.append(f"{provider}/{model or '*'}")
        routes[None] = ProviderRoute(provider, model, names, _secret(config.upstream_api_key))
    for table, upstream in config.upstreams.items():
        if upstream.url.startswith(LITELLM):
            provider, _, model = upstream.url.removeprefix(LITELLM).partition("/")
            routes[table] = ProviderRoute(
                provider, model, upstream.models, _secret(upstream.api_key), upstream.api_base
            )
    return routes


def _secret(key: SecretStr | None) -> str | None:
    return key.get_secret_value() if key else None


@asynccontextmanager
async def litellm(
    routes: Sequence[ProviderRoute], python: Path | None, log: Path, *, wait_s: float = math.inf
) -> AsyncIterator[str]:
    """Serve routes by litellm as long as the block runs; yield the URL.

    ``python``: the interpreter that has litellm; None: burnish's own. ``wait_s``: how long to wait until it serves. If
    it starts later, its requests wait. Raises ConfigError.
    """
    with socket.create_server(("127.0.0.1", 0), backlog=BACKLOG) as listener:
        program = _Litellm(routes, python, log, listener)
        starting = asyncio.ensure_future(program.start())
        await asyncio.wait({starting}, timeout=None if wait_s == math.inf else wait_s)
        if starting.done():
            starting.result()
        else:
            logger.warning("litellm is still starting: its upstreams answer later, the others do now")
        supervising = asyncio.get_running_loop().create_task(program.supervise(starting))
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            for task in (supervising, starting):  # the first one cancels the second, unless it hasn't begun
                if not task.done():
                    task.cancel()
                await asyncio.gather(task, return_exceptions=True)


class _Litellm:
    def __init__(
        self, routes: Sequence[ProviderRoute], python: Path | None, log: Path, listener: socket.socket
    ) -> None:
        self._routes = routes
        self._python = python
        self._log = log
        self._listener = listener

    async def start(self) -> Child:
        """Start the process and wait until it serves. Raises ConfigError; then no process is left."""
        command = (_program(self._python), "-I", str(PROGRAM))
        sockets = (self._listener.fileno(),)
        try:
            child = await Child.start(command, log=self._log, env=_environment(), pass_fds=sockets)
        except OSError as error:
            raise _not_run(self._python, error) from error
        try:
            answer = await child.ask(
                {"socket": sockets[0], "routes": list(map(asdict, self._routes))}, START_LIMIT_S
            )
        except ChildError as error:
            raise ConfigError(f"while it started, litellm {error}") from error
        if answer:
            await child.end()
            raise self._refused(answer)
        return child

    def _refused(self, answer: dict[str, str]) -> ConfigError:
        if missing := answer.get("missing"):
            providers = ", ".join(dict.fromkeys(route.provider for route in self._routes))
            return _not_installed(f"{LITELLM}{providers}", self._python, f" ({missing})")
        return ConfigError(answer["refused"])

    async def supervise(self, starting: Awaitable[Child]) -> None:
        """Start the process again whenever it ends. Ends it when cancelled."""
        try:
            child = await starting
        except ConfigError as error:
            logger.error("%s; trying again", error)
            child = await self._started_again()
        while True:
            try:
                status = await child.wait()
            finally:
                await child.end()
            logger.error("litellm ended (status %d): its answers were cut, and it is started again", status)
            child = await self._started_again()
            logger.info("litellm answers again")

    async def _started_again(self) -> Child:
        while True:
            try:
                return await self.start()
            except ConfigError as error:
                logger.error("%s; trying again in %g s", error, PAUSE_S)
            # Clients should hear of it rather than wait for an answer.
            async with await asyncio.start_server(_hang_up, sock=self._listener.dup()):
                await asyncio.sleep(PAUSE_S)


def _program(python: Path | None) -> str:
    return str(python or sys.executable)


def _not_run(python: Path | None, error: OSError) -> ConfigError:
    return ConfigError(
        f"litellm.python: {_program(python)} can't be run ({error.strerror}): name the interpreter of an environment "
        "that has litellm"
    )


def _not_installed(url: str, python: Path | None, why: str = "") -> ConfigError:
    how = f"{python} -m pip install {shlex.join(requirements(EXTRA))}" if python else how_to_install(EXTRA)
    alternative = "" if python else ", or set litellm.python to an interpreter that has it"
    return ConfigError(f"{url} needs litellm, which isn't installed{why}; run: {how}{alternative}")


def _environment() -> dict[str, str]:
    """Return all but burnish's own settings: the variables of providers have any names."""
    environment = {name: setting for name, setting in os.environ.items() if not name.startswith(ENV_PREFIX)}
    return environment | OWN_ENVIRONMENT


async def _hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.close()
