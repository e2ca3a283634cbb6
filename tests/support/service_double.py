"""A service manager for tests: it starts the program of its unit file again whenever that ends, until it is stopped."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from burnish.proxy import listening
from burnish.proxy.config import Config
from burnish.proxy.service import Service, State
from burnish.proxy.service.options import read_back
from burnish.proxy.service.unit_files import UnitFile

STOP_LIMIT_S = 30.0


class Supervisor(Service):
    name = "supervisor"

    def __init__(self, folder: Path) -> None:
        self._unit = folder / "burnish.unit"
        self._process: subprocess.Popen[bytes] | None = None
        self._keeper: threading.Thread | None = None
        self._wanted = False
        self.started: list[int] = []
        """Process IDs, in order."""

    def files(self) -> tuple[Path, ...]:
        return (self._unit,)

    def state(self) -> State:
        if not self._unit.exists():
            return State(installed=False)
        running = self._process is not None and self._process.poll() is None
        ended = self._process is not None and not running and not self._wanted
        return State(
            installed=True,
            at_login=True,
            running=running,
            pid=self._process.pid if running and self._process else None,
            url=self._content()["url"] if running else "",
            trouble="it ended" if ended else "",
        )

    def settings(self) -> tuple[dict[str, Any], Path | None]:
        return read_back(self._content()["command"]) if self._unit.exists() else ({}, None)

    def output(self, lines: int, *, follow: bool) -> Sequence[str]:
        return ()

    def _unit_paths(self) -> Sequence[Path]:
        return self.files()

    def _units(self, config: Config, command: Sequence[str]) -> Sequence[UnitFile]:
        content = {"command": list(command), "url": listening.url(*listening.address(config))}
        return (UnitFile(self._unit, json.dumps(content) + "\n# {mark}\n"),)

    def _start(self, *, anew: bool) -> None:
        if anew:
            self._stop()
        if self._keeper is None:
            self._wanted = True
            self._keeper = threading.Thread(target=self._keep_running, daemon=True)
            self._keeper.start()

    def _stop(self) -> None:
        self._wanted = False
        if self._process and self._process.poll() is None:
            self._process.terminate()
        if self._keeper:
            self._keeper.join(STOP_LIMIT_S)
            self._keeper = None

    def _forget(self) -> None:
        self._process = None

    def _keep_running(self) -> None:
        while self._wanted:
            self._process = subprocess.Popen(
                self._content()["command"],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=os.environ,
            )
            self.started.append(self._process.pid)
            if self._process.wait():
                self._wanted = False  # wrong settings stay wrong

    def _content(self) -> dict[str, Any]:
        return dict(json.loads(self._unit.read_text().splitlines()[0]))
