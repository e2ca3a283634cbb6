"""A socket that somebody else holds open: systemd's protocol, driven by hand, so that it needs no systemd."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import httpx
import pytest

from burnish.app.upgrade import stop_after_upgrade
from tests.support.patience import within
from tests.support.program import ask

pytestmark = pytest.mark.skipif(sys.platform == "darwin", reason="launchd hands sockets over in another way")

# A waiting client gets its answer when burnish is up, and on a busy machine that takes a while.
LIMIT_S = within(60)
# sd_listen_fds(3): the sockets begin at 3, and the variables are for one process only.
HAND_OVER = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.environ |= {"LISTEN_PID": sys.argv[2] or str(os.getpid()), "LISTEN_FDS": "1"}
os.execv(sys.executable, [sys.executable, *sys.argv[3:]])
"""
BURNISH = ("-m", "burnish")
# Of two looks at what is installed the second must show the same: here not 5 s later.
LOOKS_OFTEN = """
from functools import partial
from burnish.app import upgrade
upgrade.stop_after_upgrade = partial(upgrade.stop_after_upgrade, check_every_s=0.1)
from burnish.cli import main
main()
"""


class Manager:
    """Holds a socket, and runs burnish on it."""

    def __init__(self, data_dir: Path) -> None:
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.options = ["--data-dir", str(data_dir), "--upstream", "http://127.0.0.1:9"]
        self.running: list[subprocess.Popen[str]] = []

    def start(
        self, *, port: int | None = None, pid: str = "", program: Sequence[str] = BURNISH, **env: str
    ) -> None:
        """Hand the socket to burnish, or to the process ``pid``."""
        number = self.socket.fileno()
        command = [*program, "up", "--port", str(port or self.port), *self.options]
        self.running.append(
            subprocess.Popen(
                [sys.executable, "-c", HAND_OVER, str(number), pid, *command],
                pass_fds=[number],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                env=os.environ | env,
            )
        )

    def ends(self) -> tuple[int, str]:
        """Wait until burnish ends; return its exit code and its complaint."""
        _, complaint = self.running[-1].communicate(timeout=LIMIT_S)
        return self.running[-1].returncode, complaint

    def kill(self, number: signal.Signals) -> None:
        self.running[-1].send_signal(number)
        self.ends()

    def healthy(self) -> bool:
        return httpx.get(self.url + "/healthz", timeout=LIMIT_S).status_code == 200


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    manager = Manager(tmp_path / "data")
    yield manager
    manager.socket.close()
    if manager.running and manager.running[-1].poll() is None:
        manager.kill(signal.SIGTERM)


def test_clients_wait_while_burnish_starts_again(manager: Manager) -> None:
    manager.start()
    assert manager.healthy()
    for number in (signal.SIGTERM, signal.SIGKILL):
        manager.kill(number)
        with socket.create_connection(("127.0.0.1", manager.port), timeout=LIMIT_S) as waiting:
            waiting.sendall(b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
            manager.start()
            assert waiting.recv(12) == b"HTTP/1.1 200"


def test_another_address_than_the_configured_one_is_refused(manager: Manager) -> None:
    manager.start(port=manager.port % 60000 + 1)
    code, complaint = manager.ends()
    assert code == 1
    assert "run `burnish service install` again" in complaint


def test_a_socket_for_another_process_is_left_alone(manager: Manager) -> None:
    manager.start(pid=str(os.getpid()))
    assert "cannot listen on" in manager.ends()[1]


def test_an_upgrade_ends_it_when_nothing_is_under_way(manager: Manager, tmp_path: Path) -> None:
    record = install(tmp_path / "site", "1.0")
    manager.start(program=("-c", LOOKS_OFTEN), PYTHONPATH=str(tmp_path / "site"))
    ask(manager.url)
    install(tmp_path / "site", "1.1")
    assert record.exists()
    code, complaint = manager.ends()
    assert code == 0, complaint


def install(site: Path, content: str) -> Path:
    """Record a burnish as installed, as pip and uv do."""
    folder = site / "burnish-9.dist-info"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: burnish\nVersion: 9\n")
    record = folder / "RECORD"
    record.write_text(f"burnish/__init__.py,sha256={content},1\n")
    return record


async def test_a_run_and_requests_are_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    install(tmp_path, "1.0")
    ended, looked, busy = asyncio.Event(), asyncio.Event(), {"run": 1, "flight": 1}
    before = signal.signal(signal.SIGTERM, lambda *_: ended.set())

    def running() -> bool:
        looked.set()
        return bool(busy["run"])

    try:
        stopping = stop_after_upgrade(running, lambda: busy["flight"], check_every_s=0.01)
        watching = asyncio.ensure_future(stopping)
        await asyncio.sleep(0)  # it remembers what is installed now
        install(tmp_path, "1.1")
        for state in busy:
            looked.clear()
            await asyncio.wait_for(looked.wait(), LIMIT_S)
            assert not ended.is_set()
            busy[state] = 0
        await asyncio.wait_for(watching, LIMIT_S)
        assert ended.is_set()
    finally:
        signal.signal(signal.SIGTERM, before)
