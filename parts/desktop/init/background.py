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
from burnish.parts.desktop.service import Installation, Service, ServiceState
from burnish.parts.desktop.service.starting import wait_until_up


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
    """Uninstalls the service."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._settings: tuple[dict[str, Any], Path | None] | None = None

    def take(self) -> None:
        """Raises ServiceError."""
        settings = self._service.settings()
        if self._service.uninstall().was_installed:
            self._settings = settings

    def take_back(self) -> None:
        """Raises ServiceError, ConfigError."""
        if self._settings:
            self._service.install(*self._settings)
