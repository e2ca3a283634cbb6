"""burnish as a service, as the last step of a plan: it runs with the new settings, or with the old ones again."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from burnish.config.config import Config
from burnish.config.settings import ENV_PREFIX
from burnish.parts.desktop.init.carrying_out import Background
from burnish.parts.desktop.init.plan import SetupPlan, SetupRecord
from burnish.parts.desktop.service import Installation, Service, ServiceState, this_machines
from burnish.parts.desktop.service.base import wait_until_up
from burnish.proxy.http.errors import ServiceUnavailable
from burnish.terminal.errors import CommandFailed


class ServiceStart:
    """Installs and starts the service; a running one starts again, because it reads its settings only then."""

    def __init__(self, service: Service, flags: Mapping[str, Any], file: Path | None, config: Config) -> None:
        """``flags`` and ``file`` are those of ``Service.install``."""
        self._service = service
        self._flags = flags
        self._file = file
        self._config = config
        self._before: ServiceState | None = None
        self.installed: Installation | None = None

    def take(self) -> None:
        """Raises ServiceError, ConfigError."""
        self._before = state = self._service.state()
        self.installed = installation = self._service.install(self._flags, self._file)
        if not installation.has_changes and state.pid:
            with suppress(ProcessLookupError):  # it ends its answers, and the service manager starts it again
                os.kill(state.pid, signal.SIGTERM)
            wait_until_up(self._config, installation.url, lambda: self._state_after(state.pid))

    def take_back(self) -> None:
        """Call this when the files are as they were. Raises ServiceError, ConfigError."""
        # An installation that fails is taken back by the service itself, but it read the new settings then.
        if self._before and self._before.running:
            self._service.start_again()

    def _state_after(self, pid: int | None) -> ServiceState:
        state = self._service.state()
        return replace(state, running=False) if state.pid == pid else state


class ServiceEnd:
    def __init__(self, service: Service) -> None:
        self._service = service
        self._settings: tuple[dict[str, Any], Path | None] | None = None

    def take(self) -> None:
        """Raises ServiceError."""
        settings = self._service.settings()
        if self._service.uninstall() is not None:
            self._settings = settings

    def take_back(self) -> None:
        """Raises ServiceError, ConfigError."""
        if self._settings:
            self._service.install(*self._settings)


class ServiceHere:
    """The service manager of this machine, if it has one."""

    def __init__(self, choice: bool | None, earlier: SetupRecord | None) -> None:
        """Raises ServiceUnavailable if there is none, and a service is wanted or there was one."""
        had_one = earlier is not None and earlier.service
        self.service: Service | None = None
        self.missing = ""
        """Why there is none."""
        try:
            self.service = None if choice is False and not had_one else this_machines()
        except ServiceUnavailable as error:
            if choice or had_one:
                raise
            self.missing = str(error)
        self._state = self.service.state() if self.service else ServiceState(installed=False)
        self.url = self._state.url
        """The address of the service; "" if it doesn't listen."""
        self.users = self._state.installed and not had_one
        """Whether the user installed the service, so it isn't ours to remove."""
        own = os.environ.get(f"{ENV_PREFIX}CONFIG")
        self._file = Path(own).absolute() if own else None

    def step(self, plan: SetupPlan, config: Config) -> Background | None:
        """Return what is left to do once the files are written; None if nothing is. Raises CommandFailed."""
        if self.service is None:
            return None
        if not plan.answers.service:
            return ServiceEnd(self.service) if plan.removes_service else None
        # A service doesn't see the variables of this shell.
        flags: dict[str, Any] = {}
        if os.environ.get(f"{ENV_PREFIX}DATA_DIR"):
            flags["data_dir"] = str(config.data_dir)
        if self.users and _settings_of(self.service) != (flags, self._file):
            files = " and ".join(
                str(path) for path in self.service.files() if path.is_file() and not path.is_symlink()
            )
            raise CommandFailed(
                f"there is a service named burnish already, with other options ({files}): remove it, or leave it as it "
                "is with --no-service; nothing was changed"
            )
        if self._state.running and not plan.settings:
            return None
        return ServiceStart(self.service, flags, self._file, config)


def _settings_of(service: Service) -> tuple[dict[str, Any], Path | None] | None:
    """Return the flags and the file of a service that the user installed; None if burnish didn't write it."""
    try:
        return service.settings()
    except ValueError:
        return None
