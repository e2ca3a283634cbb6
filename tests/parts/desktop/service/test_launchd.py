"""The agent for macOS. launchd itself runs nowhere else, so a double of ``launchctl`` stands in for it here."""

from __future__ import annotations

import ctypes
import os
import plistlib
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from burnish.config.config import Config
from burnish.parts.desktop.service.launchd import LABEL, Launchd
from burnish.proxy import listening
from burnish.proxy.http.errors import ServiceUnavailable
from tests.support.llama_server import free_port

# Starts and stops the program of an agent as launchctl(1) says; one agent only.
LAUNCHCTL = f"""#!{sys.executable}
import os, pathlib, plistlib, signal, subprocess, sys
home = pathlib.Path(os.environ["HOME"])
running, loaded = home / "pid", home / "loaded"
match sys.argv[1:]:
    case ["print", domain] if "/" not in domain[4:]:
        pass
    case ["print", _]:
        if not loaded.exists():
            sys.exit(113)
        print("\\tpid = " + running.read_text())
    case ["enable", _]:
        pass
    case ["bootstrap", _, path]:
        agent = plistlib.loads(pathlib.Path(path).read_bytes())
        pathlib.Path(agent["StandardOutPath"]).parent.mkdir(parents=True, exist_ok=True)
        with open(agent["StandardOutPath"], "ab") as output:
            program = subprocess.Popen(
                agent["ProgramArguments"],
                env=os.environ | agent["EnvironmentVariables"],
                stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
            )
        running.write_text(str(program.pid))
        loaded.touch()
    case ["bootout", _]:
        if loaded.exists():
            os.kill(int(running.read_text()), signal.SIGTERM)
            running.unlink()
            loaded.unlink()
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    home = tmp_path / "home"
    (home / "bin").mkdir(parents=True)
    double = home / "bin" / "launchctl"
    double.write_text(LAUNCHCTL)
    double.chmod(0o755)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("PATH", f"{home / 'bin'}:{os.environ['PATH']}")
    monkeypatch.delenv("BURNISH_DATA_DIR")
    yield home
    Launchd().uninstall()


def test_the_agent_is_installed_and_removed(home: Path, tmp_path: Path) -> None:
    before = sorted(home.rglob("*"))
    port = free_port()
    same = {"upstream": "http://127.0.0.1:9", "train": {"enabled": False}}
    flags = same | {"port": port, "data_dir": tmp_path / "data--x"}
    service = Launchd.found()
    assert not service.state().installed
    done = service.install(flags)
    assert (done.has_changes, done.url) == (True, f"http://127.0.0.1:{port}")
    (path,) = done.files
    agent = plistlib.loads(path.read_bytes())
    assert agent["Label"] == LABEL == path.stem
    assert (agent["RunAtLoad"], agent["KeepAlive"]) == (True, True)
    assert agent["Sockets"]["Listeners"]["SockServiceName"] == str(port)
    assert agent["ExitTimeOut"] > int(agent["EnvironmentVariables"]["BURNISH_STOP_TIMEOUT_S"])
    state = service.state()
    assert (state.running, state.url, state.trouble) == (True, done.url, "")
    assert service.settings()[0] == same | {"port": str(port), "data_dir": str(tmp_path / "data--x")}
    assert not service.install(flags).has_changes
    assert "burnish is up" in printed(service.output(50, follow=False))
    assert service.uninstall() == []
    left = [path for path in home.rglob("*") if path not in before]
    assert left == [home / "Library", home / "Library" / "Logs"], "launchd made these"


def printed(command: Sequence[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_without_a_session_at_the_screen_there_is_one_clear_line(home: Path) -> None:
    (home / "bin" / "launchctl").write_text("#!/bin/sh\necho 'Could not find domain for' >&2\nexit 113\n")
    with pytest.raises(ServiceUnavailable, match="log in at the screen"):
        Launchd.found()


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler for the double of a system call")
def test_a_socket_is_taken_as_launchd_gives_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as held:
        library = compiled(tmp_path, held.fileno())
        monkeypatch.setattr(ctypes, "CDLL", lambda _: library)
        monkeypatch.setattr(sys, "platform", "darwin")
        port = held.getsockname()[1]
        with listening.handed_over(Config(port=port)) as taken:
            assert taken.getsockname() == ("127.0.0.1", port)
            assert not taken.get_inheritable()
        assert listening.handed_over(Config(port=port)) is None, "launchd gives it only once"


def compiled(folder: Path, descriptor: int) -> ctypes.CDLL:
    """The call with the prototype of its manual page."""
    source = folder / "launch.c"
    source.write_text(
        f"""
        #include <errno.h>
        #include <stdlib.h>
        #include <string.h>
        #include <unistd.h>
        static int given;
        int launch_activate_socket(const char *name, int **fds, size_t *count) {{
            if (strcmp(name, "Listeners")) return ENOENT;
            if (given++) return EALREADY;
            *fds = malloc(sizeof(int));
            (*fds)[0] = dup({descriptor});
            *count = 1;
            return 0;
        }}
        """
    )
    library = folder / "launch.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    return ctypes.CDLL(str(library))
