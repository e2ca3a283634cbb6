"""Starting and stopping the whole program, and what can be wrong then."""

from __future__ import annotations

import os
import signal
import socket
import stat
from pathlib import Path

import psutil
import pytest

from tests.support.burnish import DidNotStart, running, start
from tests.support.program import ask

UPSTREAM = ("--upstream", "http://127.0.0.1:9")


def test_files_are_their_owners_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with running(tmp_path / "data") as burnish:
            ask(burnish.url)
            ours = [path for path in burnish.data_dir.rglob("*") if path.name != "output.txt"]
            modes = {path: stat.S_IMODE(path.stat().st_mode) for path in [burnish.data_dir, *ours]}
    finally:
        os.umask(before)
    wide = {str(path): oct(mode) for path, mode in modes.items() if mode & 0o077}
    assert not wide
    assert any(path.name == "burnish.db" for path in modes)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_cleanly_and_leaves_nothing_behind(tmp_path: Path, number: signal.Signals) -> None:
    burnish = start(tmp_path / "data")
    children = psutil.Process(burnish.pid).children(recursive=True)
    assert children
    burnish.process.send_signal(number)
    assert burnish.process.wait(30) == 0
    assert not psutil.wait_procs(children, timeout=5)[1]
    assert not (burnish.data_dir / "server.json").exists()
    assert "Traceback" not in burnish.log_file.read_text()


def test_a_second_burnish_on_the_same_data_is_refused(tmp_path: Path) -> None:
    with running(tmp_path / "data", *UPSTREAM) as first:
        content = (first.data_dir / "server.json").read_text()
        with pytest.raises(DidNotStart, match="another burnish already uses"):
            start(tmp_path / "data", *UPSTREAM)
        (first.data_dir / "server.json").write_text(content)


def test_a_taken_port_is_named(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(DidNotStart, match="Pick another port with --port") as caught:
            start(tmp_path / "data", *UPSTREAM, port=taken.getsockname()[1])
    assert "exit code 1" in str(caught.value)
    assert "Traceback" not in str(caught.value)


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("--model", "/nowhere/model.gguf"), "can't be read"),
        (("--model", "{folder}/broken.gguf"), "broken.gguf"),
        (("--context", "9000"), "more than the model was trained for: set it to 8192 at most"),
        (("--context", "0"), "must be a whole number, at least 512 (given: 0)"),
        (("--parallel", "0"), "must be a whole number, at least 1 and at most 64 (given: 0)"),
        (("--context", "8192", *UPSTREAM), "context and parallel are for the embedded engine"),
        (("--model", "ollama:tiny", *UPSTREAM), "is for the embedded engine: leave upstream out"),
        (("--upstream", "not a url"), "must be an http"),
        (("--host", "0.0.0.0", *UPSTREAM), "set api_key"),
        (("--config", "/nowhere.toml"), "does not exist"),
        (("--data-dir", "{folder}/broken.gguf/data", *UPSTREAM), "name another with"),
    ],
)
def test_a_wrong_setting_is_one_sentence(tmp_path: Path, flags: tuple[str, ...], says: str) -> None:
    (tmp_path / "broken.gguf").write_bytes(b"GGUF but not really")
    with pytest.raises(DidNotStart) as caught:
        start(tmp_path / "data", *(flag.format(folder=tmp_path) for flag in flags))
    output = "".join(str(caught.value).split())  # long paths are broken into lines
    assert says.replace(" ", "") in output
    assert "Traceback" not in output
