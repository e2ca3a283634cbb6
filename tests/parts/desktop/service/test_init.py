"""``burnish init`` with a service, under a real systemd user manager."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.parts.desktop.init.test_setup import SHAPES, snapshot
from tests.support.burnish import in_thread, running
from tests.support.inprocess import listening
from tests.support.llama_server import free_port
from tests.support.patience import within
from tests.support.program import call
from tests.support.user_manager import UserManager
from tests.support.vllm_double import Engine


class User:
    def __init__(self, manager: UserManager, engine: str) -> None:
        self.manager = manager
        self.home = manager.home
        self.port = free_port()
        self.engine = engine
        for name, texts in SHAPES.items():
            path = self.home / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(texts[0])

    def burnish(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        own = {"BURNISH_DATA_DIR": str(self.home / "data")}
        return call(*arguments, env={**self.manager.env, **own})

    async def init(self, *answers: str) -> subprocess.CompletedProcess[str]:
        return await asyncio.to_thread(self.burnish, "init", "--yes", *answers)

    async def first_init(self, *answers: str) -> subprocess.CompletedProcess[str]:
        first = ("--upstream", self.engine, "--port", str(self.port), "--agents", "codex,claude-code")
        return await self.init(*first, *answers)

    def service(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.burnish("service", "status", "--json").stdout)
        return found

    async def preset(self) -> str:
        async with httpx.AsyncClient(trust_env=False, timeout=within(60)) as http:
            found = await http.get(f"http://127.0.0.1:{self.port}/burnish/config")
            return str(found.json()["train"]["preset"])


@pytest.fixture
async def user(manager: UserManager) -> AsyncIterator[User]:
    async with listening(Engine().app()) as engine:
        yield User(manager, engine)
        await asyncio.to_thread(call, "service", "uninstall", env=manager.env)
    for path in manager.home.iterdir():
        shutil.rmtree(path)
    manager.systemctl("daemon-reload")


async def test_init_starts_a_service_and_undo_leaves_the_home_byte_for_byte(user: User) -> None:
    before = snapshot(user.home)
    done = await user.first_init("--preset", "careful")
    assert done.returncode == 0, done.stderr
    assert "burnish service status" in done.stdout
    assert await user.preset() == "careful"
    assert user.service()["at_login"]
    again = await user.init()
    assert "nothing to change" in again.stdout, again.stdout + again.stderr
    # Another answer reaches the service that runs.
    assert (await user.init("--preset", "aggressive")).returncode == 0
    assert await user.preset() == "aggressive"
    undone = await asyncio.to_thread(user.burnish, "init", "--undo")
    assert undone.returncode == 0, undone.stderr
    assert "are kept in ~/data" in undone.stdout
    assert not user.service()["installed"]
    assert snapshot(user.home) == before
    assert (user.home / "data" / "burnish.db").exists()


async def test_settings_with_which_it_does_not_start_are_taken_back(user: User, tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF, and then nothing")
    settings = user.home / ".config" / "burnish" / "config.toml"
    # Otherwise init also checks whether torch can be imported, which takes seconds.
    settings.write_text(settings.read_text().replace("[train]", "[train]\nenabled = false", 1))
    before = snapshot(user.home)
    refused = await user.first_init("--upstream", "embedded", "--model", str(broken))
    assert refused.returncode == 1
    assert snapshot(user.home) == before
    assert not user.service()["installed"]
    assert (await user.first_init("--preset", "careful")).returncode == 0
    before = snapshot(user.home)
    refused = await user.init("--upstream", "embedded", "--model", str(broken), "--preset", "aggressive")
    assert refused.returncode == 1
    assert snapshot(user.home) == before
    assert await user.preset() == "careful", "it runs again with the old settings"


async def test_a_service_of_the_user_outlives_init(user: User) -> None:
    config = user.home / ".config" / "burnish" / "config.toml"
    config.write_text(f'port = {user.port}\nupstream = "{user.engine}"\n')
    data = str(user.home / "data")
    installed = await asyncio.to_thread(user.burnish, "service", "install", "--data-dir", data)
    assert installed.returncode == 0, installed.stderr
    before = snapshot(user.home)
    assert (await user.init("--preset", "careful")).returncode == 0
    assert await user.preset() == "careful"
    assert (await asyncio.to_thread(user.burnish, "init", "--undo")).returncode == 0
    assert snapshot(user.home) == before
    assert user.service()["running"]


async def test_what_is_in_the_way_of_a_service_is_named(user: User) -> None:
    unit = user.home / ".config" / "systemd" / "user" / "burnish.service"
    unit.parent.mkdir(parents=True)
    unit.write_text("[Service]\nExecStart=/bin/true\n")
    before = snapshot(user.home)
    refused = await user.first_init()
    assert (refused.returncode, str(unit) in refused.stderr) == (1, True)
    assert snapshot(user.home) == before
    shutil.rmtree(unit.parent.parent)
    before = snapshot(user.home)
    own = {"BURNISH_UPSTREAM": user.engine}
    async with in_thread(running(user.home / "data", env=own)):  # it asks the engine, which is in this loop
        refused = await user.first_init()
        assert (refused.returncode, "stop it first" in refused.stderr) == (1, True)
    assert snapshot(user.home) == before


async def test_a_service_that_is_left_out_ends(user: User) -> None:
    await user.first_init()
    assert user.service()["running"]
    done = await user.init("--no-service")
    assert done.returncode == 0, done.stderr
    assert not user.service()["installed"]
    assert "burnish up" in done.stdout
