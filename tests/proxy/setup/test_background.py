"""burnish as a service that init installs, restarts and removes: real processes under a double of a service manager."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from burnish.proxy.agents import Home, Place
from burnish.proxy.config import load_config
from burnish.proxy.errors import BurnishError
from burnish.proxy.setup import Answers, Plan, carry_out, make_plan, undo
from burnish.proxy.setup.background import End, Start
from tests.proxy.setup.test_setup import snapshot
from tests.support.inprocess import listening
from tests.support.llama_server import free_port
from tests.support.service_double import Supervisor
from tests.support.vllm_double import Engine


class Machine:
    """A home directory, and the service manager of its user."""

    def __init__(self, home: Path, upstream: str) -> None:
        self.home = home
        self.data = home / "data"
        self.file = home / ".config" / "burnish" / "config.toml"
        self.supervisor = Supervisor(home / ".config" / "units")
        self.answers = Answers(
            ("codex",), upstream, None, preset="careful", schedule="manual", port=free_port(), service=True
        )

    def plan(self) -> Plan:
        url = f"http://127.0.0.1:{self.answers.port}"
        return make_plan(self.answers, Place(url), self.file, self.data, Home(self.home, {}))

    def start(self) -> Start:
        flags = {"data_dir": str(self.data)}
        return Start(self.supervisor, flags, self.file, load_config({**self.answers.flags(), **flags}))

    async def preset(self) -> str:
        async with httpx.AsyncClient(trust_env=False, timeout=30) as http:
            found = await http.get(f"http://127.0.0.1:{self.answers.port}/burnish/config")
            return str(found.json()["train"]["preset"])


@pytest.fixture
async def machine(tmp_path: Path) -> AsyncIterator[Machine]:
    home = tmp_path / "home"
    home.mkdir()
    async with listening(Engine().app()) as upstream:
        machine = Machine(home, upstream)
        yield machine
        await asyncio.to_thread(machine.supervisor._stop)


async def test_it_runs_with_the_new_settings_until_it_is_undone(machine: Machine) -> None:
    before = snapshot(machine.home)
    plan = machine.plan()
    assert plan.installs_service
    await asyncio.to_thread(carry_out, plan, machine.start())
    assert await machine.preset() == "careful"
    # Another answer reaches the running service …
    machine.answers = replace(machine.answers, preset="aggressive")
    await asyncio.to_thread(carry_out, machine.plan(), machine.start())
    assert await machine.preset() == "aggressive"
    assert len(machine.supervisor.started) == 2
    # … and another port, too.
    machine.answers = replace(machine.answers, port=free_port())
    await asyncio.to_thread(carry_out, machine.plan(), machine.start())
    assert await machine.preset() == "aggressive"
    assert await asyncio.to_thread(machine.supervisor.uninstall)
    undo(machine.data)
    assert snapshot(machine.home) == before


async def test_settings_with_which_it_does_not_start_are_taken_back(machine: Machine) -> None:
    await asyncio.to_thread(carry_out, machine.plan(), machine.start())
    before = snapshot(machine.home)
    good = machine.answers
    machine.answers = replace(good, upstream=None, model="/nowhere.gguf")
    with pytest.raises(BurnishError):
        await asyncio.to_thread(carry_out, machine.plan(), machine.start())
    assert snapshot(machine.home) == before
    machine.answers = good
    assert await machine.preset() == "careful", "it runs again with the old settings"


async def test_a_first_start_that_fails_leaves_nothing(machine: Machine) -> None:
    before = snapshot(machine.home)
    machine.answers = replace(machine.answers, upstream=None, model="/nowhere.gguf")
    with pytest.raises(BurnishError):
        await asyncio.to_thread(carry_out, machine.plan(), machine.start())
    assert snapshot(machine.home) == before
    assert not machine.supervisor.state().installed


async def test_a_service_that_is_left_out_ends(machine: Machine) -> None:
    await asyncio.to_thread(carry_out, machine.plan(), machine.start())
    machine.answers = replace(machine.answers, service=False)
    plan = machine.plan()
    assert plan.removes_service
    await asyncio.to_thread(carry_out, plan, End(machine.supervisor))
    assert not machine.supervisor.state().installed
    with pytest.raises(httpx.ConnectError):
        await machine.preset()
