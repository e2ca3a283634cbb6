"""Starting and stopping the whole program, and what can be wrong then."""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.support.burnish import DidNotStart, running, start
from tests.support.patience import within
from tests.support.program import ask
from tests.support.tiny_gguf import random_llama

UPSTREAM = ("--upstream", "http://127.0.0.1:9")
STOPPED_ONCE_UP = """
import signal
from burnish.config.config import load_config
from burnish.app.serve import serve
serve(load_config({"port": 0, "upstream": "http://127.0.0.1:9"}), lambda url: signal.raise_signal(signal.SIGTERM))
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """The option for a model that the engine loads at once."""
    return "--model", str(random_llama(tmp_path_factory.mktemp("model") / "tiny.gguf"))


def test_files_are_their_owners_whatever_the_umask(tmp_path: Path, model: tuple[str, str]) -> None:
    before = os.umask(0)
    try:
        with running(tmp_path / "data", *model) as burnish:
            ask(burnish.url)
            ours = [path for path in burnish.data_dir.rglob("*") if path.name != "output.txt"]
            modes = {path: stat.S_IMODE(path.stat().st_mode) for path in [burnish.data_dir, *ours]}
    finally:
        os.umask(before)
    wide = {str(path): oct(mode) for path, mode in modes.items() if mode & 0o077}
    assert not wide
    assert any(path.name == "burnish.db" for path in modes)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_cleanly(tmp_path: Path, model: tuple[str, str], number: signal.Signals) -> None:
    burnish = start(tmp_path / "data", *model)
    children = psutil.Process(burnish.pid).children(recursive=True)
    assert children
    burnish.process.send_signal(number)
    assert burnish.process.wait(within(30)) == 0
    assert not psutil.wait_procs(children, timeout=within(30))[1]
    assert not (burnish.data_dir / "server.json").exists()
    assert "Traceback" not in burnish.log_file.read_text()


def test_a_signal_that_comes_as_soon_as_it_is_up_is_not_lost(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", STOPPED_ONCE_UP], check=False, timeout=within(60))
    assert done.returncode == 0
    assert (tmp_path / "data" / "burnish.db").exists()
    assert not (tmp_path / "data" / "server.json").exists()


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
        (("--data-dir", "{folder}/broken.gguf/data", *UPSTREAM), "name another with"),
    ],
)
def test_a_fault_at_the_start_is_one_sentence(tmp_path: Path, flags: tuple[str, ...], says: str) -> None:
    (tmp_path / "broken.gguf").write_bytes(b"GGUF but not really")
    with pytest.raises(DidNotStart) as caught:
        start(tmp_path / "data", *(flag.format(folder=tmp_path) for flag in flags))
    output = "".join(str(caught.value).split())  # long paths are broken into lines
    assert says.replace(" ", "") in output
    assert "Traceback" not in output
