"""A command talks to the burnish that was named, or that has its data, and its key goes nowhere else."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from burnish.config.config import load_config
from burnish.proxy.http.errors import ConfigError
from tests.support.burnish import Burnish, running
from tests.support.program import call
from tests.support.scripted_model import on_a_thread
from tests.support.upstream import Upstream, reply

KEY = "the-admin-key-of-its-owner"


@pytest.fixture
def stranger() -> Iterator[Upstream]:
    """Somebody else's server, which says that all is well."""
    with on_a_thread(reply(b"{}")) as server:
        yield server


def asked(stranger: Upstream) -> list[tuple[str, str | None]]:
    """Paths and keys of the requests."""
    return [(request.target, request.header("x-burnish-key")) for request in stranger.requests]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The data directory that commands use by default."""
    folder = tmp_path / "data"
    folder.mkdir()
    return folder


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of burnish's own configuration, which has a key."""
    folder = tmp_path / "config" / "burnish"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(f'admin_key = "{KEY}"\n')
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder.parent))
    return folder


@contextmanager
def locked(data: Path) -> Iterator[None]:
    """As if a burnish ran with this data."""
    with (data / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def note(data: Path, content: object, mode: int = 0o600) -> Path:
    file = data / "server.json"
    file.write_text(content if isinstance(content, str) else json.dumps(content))
    file.chmod(mode)
    return file


COMMANDS = (
    ("status",),
    ("good",),
    ("bad", "too long"),
    ("history",),
    ("reset", "--yes"),
    ("forget", "--user", "ann", "--yes"),
)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
@pytest.mark.parametrize("left", ["nothing", "a note of a killed one", "a broken note"])
def test_a_strangers_burnish_on_the_port_is_not_asked(
    data: Path, home: Path, stranger: Upstream, command: tuple[str, ...], left: str
) -> None:
    if left != "nothing":
        note(data, "[1]" if left == "a broken note" else {"url": stranger.url, "pid": os.getpid()})
        (data / "lock").touch()
    done = call(*command, env={"BURNISH_PORT": stranger.url.rpartition(":")[2]})
    assert done.returncode == 3
    assert f"isn't running with the data in {data}" in done.stderr
    assert "--url" in done.stderr
    assert stranger.requests == []


def test_doctor_does_not_show_its_key_to_a_stranger(data: Path, home: Path, stranger: Upstream) -> None:
    done = call(
        "doctor", "--json", env={"BURNISH_PORT": stranger.url.rpartition(":")[2], "BURNISH_ENGINE": "none"}
    )
    findings = {each["what"]: each["text"] for each in json.loads(done.stdout)}
    assert "can't be used" in findings["port"]
    assert [key for _, key in asked(stranger) if key] == []


def test_one_that_is_starting_is_waited_for(data: Path, home: Path) -> None:
    with locked(data):
        done = call("status")
    assert (done.returncode, "is starting" in done.stderr) == (3, True)


def _fifo(file: Path) -> None:
    file.unlink()
    os.mkfifo(file, 0o600)


def _link(file: Path) -> None:
    file.rename(file.with_name("elsewhere"))
    file.symlink_to(file.with_name("elsewhere"))


def _folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


@pytest.mark.parametrize(
    ("content", "change"),
    [
        ({"url": "http://evil.example:8787", "pid": 1}, None),
        ({"url": "http://127.0.0.1.evil.example", "pid": 1}, None),
        ({"url": "http://127.0.0.1:1@evil.example", "pid": 1}, None),
        ({"url": "http://10.0.0.1:8787", "pid": 1}, None),
        ({"url": 5}, None),
        ("[1]", None),
        ("<html>", None),
        ("{" * 5000, None),
        ({"url": "{stranger}", "pid": 1}, lambda file: file.chmod(0o644)),
        ({"url": "{stranger}", "pid": 1}, lambda file: file.chmod(0o660)),
        ({"url": "{stranger}", "pid": 1}, _fifo),
        ({"url": "{stranger}", "pid": 1}, _link),
        ({"url": "{stranger}", "pid": 1}, _folder),
    ],
)
def test_a_note_that_anybody_could_have_written_is_not_believed(
    data: Path, home: Path, stranger: Upstream, content: Any, change: Callable[[Path], None] | None
) -> None:
    text = content if isinstance(content, str) else json.dumps(content)
    file = note(data, text.replace("{stranger}", stranger.url))
    if change:
        change(file)
    with locked(data):
        done = call("good")
    assert done.returncode == 2
    assert "--url" in done.stderr
    assert stranger.requests == []


def test_the_key_goes_to_the_address_that_was_named(data: Path, home: Path, stranger: Upstream) -> None:
    for arguments, env in ((("--url", stranger.url), {}), ((), {"BURNISH_URL": stranger.url})):
        stranger.requests.clear()
        call("status", *arguments, env=env)
        assert asked(stranger) == [("/burnish/status", KEY)]


@pytest.mark.parametrize("line", ["BURNISH_DATA_DIR={evil}", "BURNISH_URL={stranger}", "BURNISH_PORT={port}"])
def test_a_cloned_repository_gets_no_key(
    home: Path, stranger: Upstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    """One `burnish good` in it used to be enough."""
    clone, evil = tmp_path / "clone", tmp_path / "clone" / ".b"
    evil.mkdir(parents=True)
    note(evil, {"url": stranger.url, "pid": 1})
    text = line.format(evil=evil, stranger=stranger.url, port=stranger.url.rpartition(":")[2])
    (clone / ".env").write_text(f"OTHER=1\nexport {text}\n")
    monkeypatch.chdir(clone)
    monkeypatch.delenv("BURNISH_DATA_DIR")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "share"))
    with locked(evil):
        done = call("good")
    assert stranger.requests == []
    assert done.returncode == 3
    name = line.partition("=")[0]
    assert done.stderr.count(f"sets {name}, which isn't read") == 1
    assert str(home / ".env") in done.stderr
    assert "OTHER" not in done.stderr


def test_a_clone_runs_no_program(
    home: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "py"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/it-ran\n")
    program.chmod(0o755)
    (tmp_path / ".env").write_text(f"BURNISH_UPSTREAM=litellm:openai/x\nBURNISH_LITELLM__PYTHON={program}\n")
    monkeypatch.chdir(tmp_path)
    call("doctor")
    assert not (tmp_path / "it-ran").exists()


def test_a_folder_without_them_is_not_mentioned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for content in ("OTHER=1\nNOT_BURNISH_PORT=1\n# BURNISH_PORT=5\n", "\udcff", ""):
        (tmp_path / ".env").write_bytes(content.encode(errors="surrogateescape"))
        assert ".env" not in call("status").stderr


def test_variables_beside_the_configuration_and_in_a_named_file_are_read(
    home: Path, data: Path, stranger: Upstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "config.toml").write_text("port = 1\n")
    assert load_config().port == 1
    (home / ".env").write_text("BURNISH_PORT=2\nBURNISH_API_KEY=beside-the-configuration\n")
    assert load_config().port == 2
    named = tmp_path / "compose.env"
    named.write_text(f"BURNISH_PORT=3\nBURNISH_ADMIN_KEY={KEY}\nBURNISH_URL={stranger.url}\n")
    call("--env-file", str(named), "status")
    assert asked(stranger) == [("/burnish/status", KEY)]
    monkeypatch.setenv("BURNISH_ENV_FILE", str(named))
    config = load_config()
    assert config.port == 3
    assert config.api_key and config.api_key.get_secret_value() == "beside-the-configuration"
    monkeypatch.setenv("BURNISH_PORT", "4")
    assert load_config().port == 4


def test_a_named_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    for name in ("nowhere.env", "."):
        done = call("--env-file", str(tmp_path / name), "status")
        assert done.returncode == 2
        assert "isn't a regular file" in done.stderr


@pytest.mark.parametrize(
    "line",
    [
        "BURNISH_HOST=0.0.0.0",
        "BURNISH_UPSTREAM=http://evil.example",
        "burnish_data_dir=/elsewhere",
        "BURNISH_ENGINE_PYTHON=/evil/python",
        "BURNISH_ENGINE_ARGS=[]",
        "BURNISH_MODELS_PRESET=/evil.ini",
        "BURNISH_LITELLM__PYTHON=/evil/python",
        "BURNISH_UPSTREAMS__CLOUD__URL=http://evil.example",
        "BURNISH_TRAIN__OBJECTIVE=evil:loss",
        'BURNISH_TRAIN={"objective": "evil:loss"}',
        'BURNISH_UPSTREAMS__CLOUD={"url": "http://evil.example"}',
        "BURNISH_CONFIG=/evil.toml",
        "BURNISH_ENV_FILE=/evil.env",
        "BURNISH_CACHE_DIR=/evil",
    ],
)
def test_a_file_of_variables_leads_nowhere_and_runs_nothing(home: Path, tmp_path: Path, line: str) -> None:
    for file in (home / ".env", tmp_path / "named.env"):
        file.write_text(line + "\n")
        with pytest.raises(ConfigError, match="can't: that leads to another server, folder or program"):
            load_config(environment={"BURNISH_ENV_FILE": str(file)})
        file.unlink()


def test_chat_says_first_where_it_is_and_who_answers(burnish: Burnish) -> None:
    first = call("chat", url=burnish.url, stdin="").stdout.splitlines()[0]
    assert (burnish.url in first, "smollm2" in first) == (True, True)
    named = call("chat", "--model", "smollm2@base", url=burnish.url, stdin="").stdout.splitlines()[0]
    assert named.startswith("smollm2@base answers")


def test_a_burnish_with_this_data_is_found_wherever_it_listens(tmp_path: Path) -> None:
    with running(tmp_path / "data", "--upstream", "http://127.0.0.1:9", env={"BURNISH_ENGINE": "none"}) as up:
        done = call("status", "--json")
        assert json.loads(done.stdout)["url"] == up.url
        up.kill()
        assert call("status").returncode == 3
