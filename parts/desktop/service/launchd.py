"""An agent of launchd (macOS), which holds the socket while burnish starts again.

See launchd.plist(5), launchctl(1) and launch_activate_socket(3).
"""

from __future__ import annotations

import os
import plistlib
import re
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from burnish.config.config import Config
from burnish.parts.desktop.service import options
from burnish.parts.desktop.service.base import Service, ServiceState, ask_manager
from burnish.parts.desktop.service.unit_files import UnitFile
from burnish.proxy import listening
from burnish.proxy.http.errors import ServiceError, ServiceUnavailable

LABEL = "io.github.burnish"
LIMIT_S = 60.0 + options.STOP_S + options.END_S
LOOK_EVERY_S = 0.1
COMMENT = "<!-- {mark} -->\n"
BEFORE_COMMENT = "<plist"


class Launchd(Service):
    name = "launchd"

    def __init__(self) -> None:
        self._agent = Path.home() / "Library" / "LaunchAgents" / f"{LABEL}.plist"
        self._output = Path.home() / "Library" / "Logs" / "burnish.log"
        self._domain = f"gui/{os.getuid()}"
        self._target = f"{self._domain}/{LABEL}"

    @classmethod
    def found(cls) -> Launchd:
        """Raises ServiceUnavailable if the user isn't logged in at the screen, where agents run."""
        service = cls()
        try:
            service._launchctl("print", service._domain)
        except (ServiceError, FileNotFoundError) as error:
            raise ServiceUnavailable(
                f"launchd has no session of this user ({error}): log in at the screen of this Mac, without su or sudo"
            ) from error
        return service

    def files(self) -> tuple[Path, ...]:
        return (self._agent,)

    def state(self) -> ServiceState:
        if not self._agent.exists():
            return ServiceState(installed=False)
        try:
            report = self._launchctl("print", self._target)
        except ServiceError:
            return ServiceState(installed=True)
        pid = re.search(r"^\s*pid = (\d+)$", report, re.MULTILINE)
        failure = re.search(r"^\s*last exit code = ([1-9]\d*)", report, re.MULTILINE)
        url = listening.url(*self._address())
        why = f"burnish ended with exit code {failure[1]}: see {self._output}" if failure else ""
        return ServiceState(
            installed=True,
            at_login=True,
            running=pid is not None,
            pid=int(pid[1]) if pid else None,
            url=url,
            trouble="" if pid else why,
        )

    def settings(self) -> tuple[dict[str, Any], Path | None]:
        line = self._installed().get("ProgramArguments")
        return options.read_back(line) if line else ({}, None)

    def output(self, lines: int, *, follow: bool) -> Sequence[str]:
        return (
            ["tail", f"-n{lines}", *(["-F"] if follow else []), str(self._output)]
            if self._output.exists()
            else ()
        )

    def _unit_paths(self) -> Sequence[Path]:
        return (self._agent,)

    def _units(self, config: Config, command: Sequence[str]) -> Sequence[UnitFile]:
        host, port = listening.address(config)
        stop_s = max(config.stop_timeout_s, options.STOP_S)
        agent = {
            "Label": LABEL,
            "ProgramArguments": list(command),
            "EnvironmentVariables": options.environment() | {"BURNISH_STOP_TIMEOUT_S": str(stop_s)},
            "RunAtLoad": True,
            "KeepAlive": True,
            "ExitTimeOut": stop_s + options.END_S,
            # Answers to people are no background work, which macOS slows down.
            "ProcessType": "Interactive",
            "StandardOutPath": str(self._output),
            "StandardErrorPath": str(self._output),
            "Sockets": {
                listening.LAUNCHD_NAME: {
                    "SockNodeName": host,
                    "SockServiceName": str(port),
                    "SockType": "stream",
                    "SockFamily": "IPv6" if ":" in host else "IPv4",
                }
            },
        }
        head, separator, tail = plistlib.dumps(agent, sort_keys=False).decode().partition(BEFORE_COMMENT)
        return (UnitFile(self._agent, head + COMMENT + separator + tail),)

    def _start(self, *, anew: bool) -> None:
        # launchd reads an agent only once, and keeps its socket only with the agent.
        self._stop()
        self._launchctl("enable", self._target)
        self._launchctl("bootstrap", self._domain, str(self._agent))

    def _stop(self) -> None:
        """Unload the agent, and wait until it's gone: bootout(1) returns before, and bootstrap fails until then."""
        self._launchctl("bootout", self._target, check=False)
        deadline = time.monotonic() + LIMIT_S
        with suppress(ServiceError):
            while time.monotonic() < deadline and self._launchctl("print", self._target):
                time.sleep(LOOK_EVERY_S)

    def _forget(self) -> None:
        self._output.unlink(missing_ok=True)

    def _address(self) -> tuple[str, int]:
        socket = self._installed()["Sockets"][listening.LAUNCHD_NAME]
        return socket["SockNodeName"], int(socket["SockServiceName"])

    def _installed(self) -> dict[str, Any]:
        try:
            agent: dict[str, Any] = plistlib.loads(self._agent.read_bytes())
        except (OSError, plistlib.InvalidFileException):
            return {}
        return agent

    def _launchctl(self, *arguments: str, check: bool = True) -> str:
        """Raises ServiceError with what launchctl complains of."""
        return ask_manager(("launchctl", *arguments), limit_s=LIMIT_S, check=check)
