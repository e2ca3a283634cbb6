"""``burnish service`` under a real systemd user manager."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from burnish.adapters.hosts.fetch import file_digest
from burnish.adapters.registry import Registry
from burnish.parts.desktop.service.systemd import SERVICE, SOCKET, _quoted
from burnish.proxy.http.errors import ServiceError
from tests.parts.desktop.init.test_setup import snapshot
from tests.support.burnish import BOOT_LIMIT_S, running
from tests.support.llama_server import free_port
from tests.support.lora import register, write_peft
from tests.support.patience import within
from tests.support.program import call, run
from tests.support.tiny_gguf import TINY, random_llama, tiny_lora
from tests.support.upstream import Received, events, reply, stream, upstream
from tests.support.user_manager import UserManager

NOWHERE = ("--upstream", "http://127.0.0.1:9")
"""Without an engine burnish starts at once."""


class Session:
    """A user who runs commands in a session of their own."""

    def __init__(self, manager: UserManager, data_dir: Path) -> None:
        self.manager = manager
        self.data_dir = data_dir
        self.port = free_port()
        self.units = manager.home / ".config" / "systemd" / "user"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def env(self) -> dict[str, str]:
        return {**self.manager.env, "BURNISH_DATA_DIR": str(self.data_dir)}

    def burnish(self, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
        return call("service", *arguments, env=self.env | env)

    def install(self, *options: str, **env: str) -> subprocess.CompletedProcess[str]:
        where = ("--port", str(self.port), "--data-dir", str(self.data_dir))
        return self.burnish("install", *where, *options, **env)

    def refuses(self, *options: str, says: str, code: int = 1, **env: str) -> str:
        """Check that nothing is installed, and that the home directory stays as it is; return the complaint."""
        before = self.home()
        done = self.install(*options, **env)
        assert (done.returncode, says in done.stderr) == (code, True), done.stderr
        assert self.home() == before
        return done.stderr

    def state(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.burnish("status", "--json").stdout)
        return found

    def home(self) -> dict[str, tuple[bytes | str | None, int]]:
        return snapshot(self.manager.home)

    def clean(self) -> None:
        self.burnish("uninstall")
        for path in self.manager.home.iterdir():
            shutil.rmtree(path)
        self.manager.systemctl("daemon-reload")
        self.manager.systemctl("reset-failed")


@pytest.fixture(scope="module")
def last(manager: UserManager, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """The session of tests that leave the service installed for the next one."""
    last = Session(manager, tmp_path_factory.mktemp("installed") / "data")
    yield last
    last.clean()


@pytest.fixture
def installed(last: Session) -> Session:
    """The service is installed with NOWHERE, by this test or an earlier one."""
    done = last.install(*NOWHERE)
    assert done.returncode == 0, done.stderr
    return last


@pytest.fixture
def session(manager: UserManager, last: Session, tmp_path: Path) -> Iterator[Session]:
    if any(manager.home.iterdir()):
        last.clean()
    session = Session(manager, tmp_path / "data")
    yield session
    session.clean()


def test_it_is_installed_once_and_uninstalling_leaves_the_home_as_it_was(session: Session) -> None:
    before = session.home()
    first = session.install(*NOWHERE)
    assert first.returncode == 0, first.stderr
    assert session.url in first.stdout
    assert "loginctl enable-linger" in first.stdout
    assert served_health(session) == 200
    written = {name for name, content in session.home().items() if content[0]}
    assert len(written) == 4
    assert all(str(session.manager.home / name) in first.stdout for name in written)
    state = session.state()
    assert (state["installed"], state["at_login"], state["running"]) == (True, True, True)
    assert (state["url"], state["trouble"]) == (session.url, "")

    again = session.install(*NOWHERE)
    assert "already" in again.stdout
    assert session.state()["pid"] == state["pid"]

    assert session.burnish("uninstall").returncode == 0
    assert session.home() == before
    assert (session.data_dir / "burnish.db").exists()
    assert not session.state()["installed"]
    assert session.burnish("status").returncode == 3
    with pytest.raises(httpx.ConnectError):
        httpx.get(session.url + "/healthz")
    assert "isn't installed" in session.burnish("uninstall").stdout


def test_systemd_has_no_complaints(installed: Session) -> None:
    done = subprocess.run(
        ["systemd-analyze", "verify", "--user", installed.units / SOCKET, installed.units / SERVICE],
        env=os.environ | installed.manager.env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_change_that_fails_leaves_the_service_that_was_there(installed: Session) -> None:
    before = installed.home()
    done = installed.install("--model", "/nowhere.gguf")
    assert "The service is as it was before" in done.stderr
    assert installed.home() == before
    assert served_health(installed) == 200


def test_another_port_moves_the_service(installed: Session) -> None:
    old, installed.port = installed.url, free_port()
    assert installed.install(*NOWHERE).returncode == 0
    assert served_health(installed) == 200
    with pytest.raises(httpx.ConnectError):
        httpx.get(old)


@pytest.mark.parametrize("character", ["\n", "\r", "\x85", "\u2028", "\x1b", "\0"])
def test_a_line_break_begins_no_line_of_its_own_in_a_unit(session: Session, character: str) -> None:
    model = f"/models/a{character}ExecStartPre=/bin/evil"
    with pytest.raises(ServiceError, match="can't stand in a service's file"):
        _quoted(model, "$")
    if character != "\0":
        done = session.install("--model", model, *NOWHERE)
        assert done.returncode in (1, 2)
    assert not (session.units / SERVICE).exists()


def test_an_edited_unit_is_kept(installed: Session) -> None:
    unit = installed.units / SERVICE
    unit.write_text(unit.read_text() + "# mine\n")
    assert "burnish didn't write it as it is" in installed.install(*NOWHERE, "--no-train").stderr
    assert f"{unit}.edited" in installed.burnish("uninstall").stdout
    assert "# mine" in unit.with_name(f"{SERVICE}.edited").read_text()
    assert not unit.exists()


@pytest.fixture
async def model() -> AsyncIterator[str]:
    """An upstream whose answers take a while, so that some are always under way."""
    answer = stream(events("one two three four five"), pause_s=0.02)
    unknown = reply(b"{}", status="404 Not Found")  # at once: a burnish that starts asks what engine it is

    async def script(request: Received, writer: asyncio.StreamWriter) -> None:
        await (answer if request.target == "/v1/chat/completions" else unknown)(request, writer)

    async with upstream(script) as server:
        yield server.url


async def test_a_restart_cuts_and_refuses_no_request(session: Session, model: str) -> None:
    assert (await asyncio.to_thread(session.install, "--upstream", model)).returncode == 0
    pids, answers, stop = [], [], asyncio.Event()

    async def ask(keep: bool) -> None:
        while not stop.is_set():
            async with httpx.AsyncClient(timeout=within(60), verify=False) as client:
                for _ in range(20 if keep else 1):
                    if stop.is_set():
                        return
                    body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "Count!"}]}
                    answer = await client.post(session.url + "/v1/chat/completions", json=body)
                    answers.append((answer.status_code, "five" in answer.text, "[DONE]" in answer.text))

    async with asyncio.TaskGroup() as group:
        for keep in (True, True, False, False):
            group.create_task(ask(keep))
        for _ in range(2):
            before = len(answers)
            while len(answers) < before + 8:
                await asyncio.sleep(0.01)
            state = await asyncio.to_thread(session.state)
            pids.append(state["pid"])
            await asyncio.to_thread(session.manager.systemctl, "restart", SERVICE)
        before = len(answers)
        while len(answers) < before + 8:
            await asyncio.sleep(0.01)
        pids.append((await asyncio.to_thread(session.state))["pid"])
        stop.set()
    assert len(set(pids)) == 3, "it didn't restart"
    assert set(answers) == {(200, True, True)}


def test_after_a_kill_and_after_a_new_login_it_serves_the_same_version(session: Session) -> None:
    folder = session.data_dir.parent
    model = random_llama(folder / "tiny.gguf")
    adapter = write_peft(folder / "made", tiny_lora(TINY, 1))
    registry = Registry(session.data_dir / "adapters")
    made = register(registry, adapter, file_digest(model), "tiny")
    registry.record(made.number, "live", "for the test", replaced=0)
    assert session.install("--model", str(model)).returncode == 0
    assert served(session) == made.number
    os.kill(session.state()["pid"], signal.SIGKILL)
    assert served(session) == made.number
    session.manager.log_out()
    session.manager.log_in()
    assert served(session) == made.number
    assert session.state()["pid"]


def served(session: Session) -> int:
    """Wait until burnish answers; return the live version."""
    deadline = time.monotonic() + within(BOOT_LIMIT_S)
    while True:
        try:
            status = httpx.get(session.url + "/burnish/status", timeout=within(BOOT_LIMIT_S)).json()
            return int(status["live"]["version"])
        except httpx.HTTPError:
            assert time.monotonic() < deadline
            time.sleep(0.02)


@pytest.mark.parametrize("taken", ["port", "data directory"])
def test_what_somebody_else_has_is_named_and_nothing_is_installed(session: Session, taken: str) -> None:
    if taken == "port":
        with socket.create_server(("127.0.0.1", session.port)):
            session.refuses(*NOWHERE, says=f"another program listens on 127.0.0.1:{session.port}")
    else:
        with running(session.data_dir, *NOWHERE):
            session.refuses(*NOWHERE, says=f"another burnish already uses {session.data_dir}")


def test_a_burnish_that_does_not_start_says_why_and_leaves_nothing(session: Session) -> None:
    complaint = session.refuses("--model", "/nowhere.gguf", says="/nowhere.gguf can't be read")
    assert "Nothing was installed" in complaint
    assert not session.state()["installed"]


def served_health(session: Session) -> int:
    return httpx.get(session.url + "/healthz", timeout=within(BOOT_LIMIT_S)).status_code


@pytest.mark.parametrize(
    ("options", "env", "says"),
    [
        (("--upstream", "not a url"), {}, "must be an http"),
        (("--port", "0"), {}, "needs a port of its own"),
        (NOWHERE, {"BURNISH_LOG__KEEP_DAYS": "3"}, "BURNISH_LOG"),
        (("--config", "/nowhere.toml"), {}, "does not exist"),
    ],
)
def test_wrong_settings_are_one_sentence(session: Session, options: Any, env: Any, says: str) -> None:
    session.refuses(*options, says=says, code=2, **env)


def test_wrong_settings_are_not_tried_again_and_again(session: Session) -> None:
    settings = session.data_dir.parent / "config.toml"
    settings.write_text("")
    assert session.install(*NOWHERE, "--config", str(settings)).returncode == 0
    settings.write_text("prot = 1")
    restarted_in_vain(session)
    assert "did you mean 'port'?" in session.burnish("status").stdout
    assert session.manager.systemctl("show", "--property=NRestarts", SERVICE) == "NRestarts=0\n"


def restarted_in_vain(session: Session) -> None:
    """Restart burnish, and wait until systemd has given it up."""
    session.manager.systemctl("restart", SERVICE)
    deadline = time.monotonic() + within(BOOT_LIMIT_S)
    # Not by asking burnish, which would start it again: its socket is open.
    while "failed" not in session.manager.systemctl("show", "--property=ActiveState", SERVICE):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_foreign_unit_is_never_overwritten_or_lost(session: Session) -> None:
    session.units.mkdir(parents=True)
    (session.units / SERVICE).write_text("[Service]\nExecStart=/bin/true\n")
    before = session.home()
    session.refuses(*NOWHERE, says="burnish didn't write it")
    forced = session.install(*NOWHERE, "--force")
    assert forced.returncode == 0, forced.stderr
    assert f"{SERVICE}.before-burnish is where your file is now" in forced.stdout
    session.burnish("uninstall")
    assert session.home() == before


def test_what_is_left_of_a_service_is_removed(session: Session) -> None:
    before = session.home()
    session.install(*NOWHERE)
    (session.units / SOCKET).unlink()
    done = session.burnish("uninstall")
    assert (done.returncode, done.stderr) == (0, "")
    # The socket's unit knew which folders were new.
    assert session.home().keys() - before.keys() <= {".config", ".config/systemd", ".config/systemd/user"}
    assert "inactive" in session.manager.systemctl("is-active", SERVICE, SOCKET, check=False)


def test_a_home_that_cannot_be_written_is_named(session: Session) -> None:
    (session.manager.home / ".config").mkdir()
    (session.manager.home / ".config" / "systemd").mkdir()
    session.units.touch()
    session.refuses(*NOWHERE, says=f"{session.units} can't be written")


def test_without_a_manager_there_is_one_clear_line(session: Session, tmp_path: Path) -> None:
    assert "doesn't answer to this user" in session.install(XDG_RUNTIME_DIR=str(tmp_path)).stderr
    done = session.install(PATH=str(tmp_path))
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "has no systemd" in done.stderr


def test_logs_say_what_there_is(session: Session) -> None:
    assert session.burnish("logs").returncode == 1
    session.data_dir.mkdir(exist_ok=True)
    (session.data_dir / "burnish.log").write_text("one\ntwo\n")
    done = run("service", "logs", "-n", "1", env=session.env)  # another program prints the log
    assert "isn't installed" in done.stdout
    assert done.stdout.endswith("two\n")
