"""Units of a systemd user manager: a socket, which stays open while burnish starts again, and the service behind it.

See systemd.socket(5) and systemd.service(5).
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from getpass import getuser
from pathlib import Path
from typing import Any

from burnish.config.config import Config
from burnish.parts.desktop.service import options
from burnish.parts.desktop.service.base import Service, ServiceState, ask_manager
from burnish.parts.desktop.service.unit_files import UnitFile
from burnish.proxy import listening
from burnish.proxy.http.errors import ServiceError, ServiceUnavailable

# How long systemd may take for anything but stopping burnish.
LIMIT_S = 60.0
CONTROL = re.compile("[\0-\x1f\x7f-\x9f\u2028\u2029]")
LINGERING = Path("/var/lib/systemd/linger")
"""Has a file for each user whose services run without a login."""
# As much of the output as explains why a program ended.
LAST_LINES = 5
SOCKET, SERVICE = "burnish.socket", "burnish.service"
JOURNAL = ("journalctl", "--user", f"--unit={SERVICE}", "--quiet", "--output=cat")
PROPERTIES = (
    "ActiveState", "SubState", "MainPID", "UnitFileState", "ActiveEnterTimestamp", "Result", "ExecMainStatus",
    "StatusText", "FragmentPath",
)  # fmt: skip

SOCKET_TEXT = """\
# {{mark}}
[Unit]
Description=burnish: the address that agents talk to

[Socket]
ListenStream={address}

[Install]
WantedBy=sockets.target
"""

SERVICE_TEXT = """\
# {{mark}}
[Unit]
Description=burnish: an inference proxy that learns from ratings
Requires=burnish.socket
# If it fails again and again, it's left alone, and `burnish service status` says why.
StartLimitIntervalSec=60
StartLimitBurst=10

[Service]
Type=exec
ExecStart={command}
{environment}
Restart=always
RestartSec=200ms
# Wrong settings stay wrong.
RestartPreventExitStatus=2
# Only burnish itself is asked to stop: answers under way still need the engine, its child.
KillMode=mixed
TimeoutStopSec={stop_s}
# If the memory runs out in training, only training ends.
OOMPolicy=continue
NoNewPrivileges=yes
NotifyAccess=main

[Install]
WantedBy=default.target
"""


class Systemd(Service):
    name = "systemd"

    def __init__(self) -> None:
        config = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
        self._folder = Path(config) / "systemd" / "user"
        # It's missing after su and sudo, though the user's manager may run.
        self._environment = {"XDG_RUNTIME_DIR": f"/run/user/{os.getuid()}"} | os.environ

    @classmethod
    def found(cls) -> Systemd:
        """Raises ServiceUnavailable if the user has no manager."""
        service = cls()
        try:
            service._systemctl("show", "--property=Version")
        except FileNotFoundError as error:
            raise ServiceUnavailable(
                "this machine has no systemd, so burnish can't be a service: let its own start-up run `burnish up`"
            ) from error
        except ServiceError as error:
            raise ServiceUnavailable(
                f"systemd doesn't answer to this user ({error}). Log in as the user without su or sudo; in WSL, "
                "switch systemd on; in a container, run `burnish up`"
            ) from error
        return service

    def files(self) -> tuple[Path, ...]:
        links = (
            self._folder / "sockets.target.wants" / SOCKET,
            self._folder / "default.target.wants" / SERVICE,
        )
        return (*self._unit_paths(), *links)

    def state(self) -> ServiceState:
        service, socket = self._show(SERVICE), self._show(SOCKET)
        if Path(service["FragmentPath"]) != self._folder / SERVICE:
            return ServiceState(installed=False)
        running = service["ActiveState"] == "active"
        url = listening.url(*_address(self._folder / SOCKET)) if socket["ActiveState"] == "active" else ""
        return ServiceState(
            installed=True,
            at_login=service["UnitFileState"] == socket["UnitFileState"] == "enabled",
            running=running,
            pid=int(service["MainPID"]) or None,
            since=service["ActiveEnterTimestamp"] if running else "",
            url=url,
            trouble="" if running else self._trouble(service, socket),
        )

    def settings(self) -> tuple[dict[str, Any], Path | None]:
        for line in _lines(self._folder / SERVICE):
            if line.startswith("ExecStart="):
                words = shlex.split(line.partition("=")[2])
                return options.read_back([word.replace("%%", "%").replace("$$", "$") for word in words])
        return {}, None

    def output(self, lines: int, *, follow: bool) -> Sequence[str]:
        if not self._journal(lines=1):  # many systems keep none for their users
            return ()
        return [*JOURNAL, f"--lines={lines}", *(["--follow"] if follow else ["--no-pager"])]

    def _unit_paths(self) -> Sequence[Path]:
        return self._folder / SOCKET, self._folder / SERVICE

    def _units(self, config: Config, command: Sequence[str]) -> Sequence[UnitFile]:
        host, port = listening.address(config)
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        stop_s = max(config.stop_timeout_s, options.STOP_S)
        variables = options.environment() | {"BURNISH_STOP_TIMEOUT_S": str(stop_s)}
        text = SERVICE_TEXT.format(
            command=" ".join(_quoted(word, "$") for word in command),
            environment="\n".join(f"Environment={_quoted(f'{name}={v}')}" for name, v in variables.items()),
            stop_s=stop_s + options.END_S,
        )
        socket, service = self._unit_paths()
        return UnitFile(socket, SOCKET_TEXT.format(address=address)), UnitFile(service, text)

    def _start(self, *, anew: bool) -> None:
        self._systemctl("daemon-reload")
        unit_path = self._show(SERVICE)["FragmentPath"]
        if Path(unit_path) != self._folder / SERVICE:
            raise ServiceError(
                f"systemd doesn't read units from {self._folder}: log in again, so that XDG_CONFIG_HOME is the same "
                "for both"
            )
        self._systemctl("enable", SOCKET, SERVICE)
        self._systemctl("reset-failed", SOCKET, SERVICE, check=False)
        if anew:
            self._systemctl("stop", SOCKET, SERVICE, limit_s=None)
        self._systemctl("start", SOCKET)
        self._systemctl("restart", SERVICE, limit_s=None)

    def _stop(self) -> None:
        for unit in (SOCKET, SERVICE):  # the user may have removed one of them
            self._systemctl("disable", unit, check=False)
        self._systemctl("stop", SOCKET, SERVICE, limit_s=None, check=False)
        if self._show(SERVICE)["ActiveState"] == "active":
            raise ServiceError(f"{SERVICE} doesn't stop: `systemctl --user status burnish` may say why")

    def _forget(self) -> None:
        self._systemctl("daemon-reload")
        self._systemctl("reset-failed", SOCKET, SERVICE, check=False)

    def _advice(self) -> Sequence[str]:
        if (LINGERING / getuser()).exists():
            return ()
        return (
            "it starts when you log in, and stops when you log out. To run it without a login: "
            "loginctl enable-linger",
        )

    def _trouble(self, service: Mapping[str, str], socket: Mapping[str, str]) -> str:
        """Return why the service isn't running; "" if it was stopped, or was told to start again."""
        if socket["Result"] == "resources":
            where = ":".join(map(str, _address(self._folder / SOCKET)))
            return f"another program listens on {where}, so systemd can't: stop it, or install with another --port"
        if service["Result"] == "start-limit-hit" and not service["StatusText"]:
            return "burnish was started more than 10 times in a minute, so systemd has given it up"
        calm = service["ActiveState"] == "inactive" or service["Result"] == "success"
        if calm and socket["ActiveState"] != "failed":
            return ""
        why = service["StatusText"] or self._journal(LAST_LINES) or "it printed nothing"
        again = "" if service["SubState"] == "auto-restart" else ", and systemd has given it up"
        return f"burnish ended with exit code {service['ExecMainStatus']}{again}: {why}"

    def _journal(self, lines: int) -> str:
        """Return the last lines that burnish printed; "" if they aren't kept."""
        line = [*JOURNAL, f"--lines={lines}", "--no-pager"]
        with suppress(FileNotFoundError):
            process = subprocess.run(line, env=self._environment, capture_output=True, text=True, check=False)
            return process.stdout.strip()
        return ""

    def _show(self, unit: str) -> dict[str, str]:
        report = self._systemctl("show", unit, f"--property={','.join(PROPERTIES)}")
        properties = dict(line.split("=", 1) for line in report.splitlines() if "=" in line)
        return dict.fromkeys(PROPERTIES, "") | properties

    def _systemctl(self, *arguments: str, limit_s: float | None = LIMIT_S, check: bool = True) -> str:
        """Raises ServiceError with what systemctl complains of, FileNotFoundError without systemd."""
        line = ("systemctl", "--user", *arguments)
        return ask_manager(line, limit_s=limit_s, check=check, environment=self._environment)


def _quoted(word: str, *specials: str) -> str:
    """Quote a word for a unit file; systemd.syntax(7). ``specials`` are characters that mean something here.

    Raises ServiceError for control characters: a line break would begin a line of its own.
    """
    if unprintable := CONTROL.search(word):
        raise ServiceError(
            f"{word!a} can't stand in a service's file, because of {unprintable[0]!a}: rename it"
        )
    if re.fullmatch(r"[\w./:=@,+-]+", word, re.ASCII):
        return word
    for special in ("%", *specials):
        word = word.replace(special, special * 2)
    return '"' + word.replace("\\", r"\\").replace('"', r"\"") + '"'


def _address(socket: Path) -> tuple[str, int]:
    for line in _lines(socket):
        if line.startswith("ListenStream="):
            host, _, port = line.partition("=")[2].rpartition(":")
            return host.strip("[]"), int(port)
    return "", 0


def _lines(unit: Path) -> Sequence[str]:
    try:
        return unit.read_text(encoding="utf-8").splitlines()
    except OSError:
        return ()
