"""A service manager, for the commands: what is the same for all of them, and waiting until burnish answers."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from burnish.app.upgrade import check_program
from burnish.config.config import Config
from burnish.config.settings import ENV_PREFIX
from burnish.parts.desktop.service import options, unit_files
from burnish.parts.desktop.service.unit_files import UnitFile
from burnish.parts.user_files import Snapshot
from burnish.proxy import data_dir, listening, server_file
from burnish.proxy.http.errors import BurnishError, ConfigError, ServiceError

# The first start may fetch the small model (98 MB).
START_LIMIT_S = 180.0
ANSWER_LIMIT_S = 2.0
LOOK_EVERY_S = 0.1


@dataclass(frozen=True)
class ServiceState:
    installed: bool
    at_login: bool = False
    running: bool = False
    pid: int | None = None
    since: str = ""
    """When it started, in the words of the service manager."""
    url: str = ""
    """Where it listens, also while it starts again; "" if nowhere."""
    version: str | None = None
    """Version of the burnish that answers; "" if it needs a key to say it, None if none answers or wasn't asked."""
    trouble: str = ""
    """Why it isn't running; "" if it runs, or was stopped."""


@dataclass(frozen=True)
class Installation:
    url: str
    files: tuple[Path, ...]
    """All files of the service, links included; all of them go when it is uninstalled."""
    has_changes: bool
    """False if the same service was there and ran."""
    notes: tuple[str, ...] = ()
    """Sentences for the user, e.g. where a foreign file was put."""


class Service(ABC):
    """burnish under the service manager of one user."""

    name: str

    def install(
        self, flags: Mapping[str, Any], file: Path | None = None, *, force: bool = False
    ) -> Installation:
        """Write the files, start burnish and wait until it answers. If that fails, leave everything as it was.

        ``flags`` are settings as for ``load_config``, ``file`` is the configuration file. ``force`` puts a foreign
        file of the same name aside. Raises ServiceError, ConfigError.
        """
        if file is None and (path := os.environ.get(f"{ENV_PREFIX}CONFIG")):
            file = Path(path)
        config = options.settings(flags, file)
        url = listening.url(*listening.address(config))
        units = self._units(config, options.command(flags, file))
        unit_files.check_free(units, force)
        state = self.state()
        if state.running and state.at_login and all(unit.is_there() for unit in units):
            return Installation(url, self.files(), has_changes=False)
        check_program()
        check_can_start(config, state)
        with self._all_or_nothing(units):
            aside = unit_files.put_aside(units)
            for unit in units:
                unit.write()
            self._start(anew=state.url != url)
            up = wait_until_up(config, url, self.state)
        notes = [f"{path} is where your file is now; uninstalling puts it back" for path in aside]
        if not up:
            notes.append("burnish is still starting: `burnish service logs --follow`")
        return Installation(url, self.files(), has_changes=True, notes=(*notes, *self._advice()))

    def start_again(self) -> None:
        """Start burnish with the settings of now, and wait until it answers. Failures until now don't count.

        Raises ServiceError, ConfigError.
        """
        config = options.settings(*self.settings())
        self._start(anew=False)
        wait_until_up(config, listening.url(*listening.address(config)), self.state)

    def uninstall(self) -> Sequence[str] | None:
        """Stop burnish and remove all that ``install`` wrote; a file put aside comes back.

        Return sentences for the user, or None if nothing was installed. Raises ServiceError.
        """
        paths = self._unit_paths()
        if not any(unit_files.is_marked(path) for path in paths):
            return None
        self._stop()
        try:
            edited_files = unit_files.remove(paths)
        except OSError as error:
            raise ServiceError(f"{error.filename} can't be removed: {error.strerror}") from error
        self._forget()
        return [f"you had edited it, so it's kept: {path}" for path in edited_files]

    @abstractmethod
    def files(self) -> tuple[Path, ...]:
        """Return the paths of all files that ``install`` writes, including links."""

    @abstractmethod
    def state(self) -> ServiceState:
        """Raises ServiceError."""

    @abstractmethod
    def settings(self) -> tuple[dict[str, Any], Path | None]:
        """Return the flags and the configuration file with which it is installed; nothing if it isn't."""

    @abstractmethod
    def output(self, lines: int, *, follow: bool) -> Sequence[str]:
        """Return the command that prints what burnish printed; empty if that is kept nowhere."""

    @abstractmethod
    def _unit_paths(self) -> Sequence[Path]: ...

    @abstractmethod
    def _units(self, config: Config, command: Sequence[str]) -> Sequence[UnitFile]: ...

    @abstractmethod
    def _start(self, *, anew: bool) -> None:
        """Start what the files say, now and at login; ``anew`` if the address is another one. Raises ServiceError."""

    @abstractmethod
    def _stop(self) -> None:
        """Stop it, and don't start it at login. Raises ServiceError."""

    @abstractmethod
    def _forget(self) -> None:
        """Called once the files are gone."""

    def _advice(self) -> Sequence[str]:
        """Return what the user should know about this service manager."""
        return ()

    @contextmanager
    def _all_or_nothing(self, units: Sequence[UnitFile]) -> Iterator[None]:
        """Take back an installation that fails or is interrupted; the one before it runs again."""
        foreign = [unit.path for unit in units if unit_files.is_foreign(unit.path)]
        was_installed = any(unit_files.is_ours(unit.path) for unit in units)
        snapshot = Snapshot(unit.path for unit in units if unit.path not in foreign)
        try:
            yield
        except BaseException as error:
            with suppress(BurnishError, OSError):
                self._stop()
            outcome = "It couldn't be taken back: `burnish service status`"
            with suppress(BurnishError, OSError):
                unit_files.put_back(foreign)
                restored = not snapshot.restore()
                if was_installed:
                    self._start(anew=True)
                else:
                    self._forget()
                if restored:
                    outcome = "The service is as it was before" if was_installed else "Nothing was installed"
            if isinstance(error, ServiceError):
                raise ServiceError(f"{error}. {outcome}") from error
            if isinstance(error, OSError):
                raise ServiceError(
                    f"{error.filename} can't be written ({error.strerror}). {outcome}"
                ) from error
            raise


def ask_manager(
    line: Sequence[str], *, limit_s: float | None, check: bool, environment: Mapping[str, str] | None = None
) -> str:
    """Run a command of the service manager; return what it prints.

    Raises ServiceError with its complaint if ``check``, and FileNotFoundError if there is no such command.
    """
    command = f"`{shlex.join(line)}`"
    try:
        process = subprocess.run(
            line,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=limit_s,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise ServiceError(f"{command} took more than {error.timeout:g} s") from error
    if process.returncode and check:
        complaint = process.stderr.strip().splitlines() or [f"exit code {process.returncode}"]
        raise ServiceError(f"{command}: {complaint[0]}")
    return process.stdout


def check_can_start(config: Config, state: ServiceState) -> None:
    """Raises ServiceError if somebody else has the port or the data directory; ConfigError if it can't be written.

    The service that runs already may have both.
    """
    data_dir.prepare(config.data_dir)
    if not state.running:
        try:
            with data_dir.locked(config.data_dir):
                pass
        except ConfigError as error:
            raise ServiceError(
                f"another burnish already uses {config.data_dir}: stop it first (Ctrl-C in its terminal), "
                "or name another folder with --data-dir"
            ) from error
    if state.url != listening.url(*listening.address(config)):
        try:
            with listening.bound(config):
                pass
        except ConfigError as error:
            raise ServiceError(
                f"another program listens on {config.host}:{config.port}: stop it, or pick another port with --port"
            ) from error


def wait_until_up(config: Config, url: str, state: Callable[[], ServiceState]) -> bool:
    """Return True once burnish answers, False if it still starts after minutes. Raises ServiceError if it ends."""
    deadline = time.monotonic() + START_LIMIT_S
    while time.monotonic() < deadline:
        service_state = state()
        if not service_state.running and service_state.trouble:
            raise ServiceError(service_state.trouble)
        if service_state.running and _serving(config) == service_state.pid and running_version(url):
            return True
        time.sleep(LOOK_EVERY_S)
    return False


def running_version(url: str) -> str | None:
    """Return the version of the burnish at a URL; "" if it needs a key to say it, None if none answers in time."""
    parts = urlsplit(url)
    connection = HTTPConnection(parts.hostname or "", parts.port, timeout=ANSWER_LIMIT_S)
    try:
        connection.request("GET", "/healthz", headers={"connection": "close"})
        return str(json.loads(connection.getresponse().read()).get("version", ""))
    except (OSError, HTTPException, ValueError, AttributeError):
        return None
    finally:
        connection.close()


def _serving(config: Config) -> int | None:
    """Return the process ID of the burnish that has begun to serve the data directory."""
    try:
        server = server_file.running(config)
    except ConfigError:
        return None
    return server.pid if server else None
