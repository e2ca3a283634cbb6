"""The service on this machine, as ``burnish init`` finds it and would install it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from burnish.config.config import Config
from burnish.config.settings import ENV_PREFIX
from burnish.parts.desktop.init import Background, SetupPlan, SetupRecord
from burnish.parts.desktop.init.background import ServiceEnd, ServiceStart
from burnish.parts.desktop.service import Service, ServiceState, this_machines
from burnish.proxy.http.errors import ServiceUnavailable
from burnish.terminal.errors import CommandFailed


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
        self.users = self._state.installed and not had_one
        """Whether the user installed the service, so it isn't ours to remove."""
        own = os.environ.get(f"{ENV_PREFIX}CONFIG")
        self._file = Path(own).absolute() if own else None

    @property
    def url(self) -> str:
        """The address of the service; "" if it doesn't listen."""
        return self._state.url

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
        if self.users and self._settings(self.service) != (flags, self._file):
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

    def _settings(self, service: Service) -> tuple[dict[str, Any], Path | None] | None:
        """Return the flags and the file of a service that the user installed; None if burnish didn't write it."""
        try:
            return service.settings()
        except ValueError:
            return None
