"""A run that starts by itself waits until nobody else needs the machine; one that the user asks for doesn't."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from burnish.app.chat import chat_actions
from burnish.learner.machine import Machine
from tests.learner.conftest import Open, QuietMachine, World, no_reset
from tests.proxy.log.exchanges import until
from tests.support.lora import random_lora, register, write_peft

GB = 10**9
UNPLUGGED = Machine(on_battery=True)
FULL = Machine(load=0.1, free_bytes=1 * GB, total_bytes=10 * GB)


@pytest.fixture
def few(tmp_path: Path) -> dict[str, Any]:
    """Settings with which four ratings start a run, which fails at once."""
    counts = {"min_ratings": 4, "min_good": 2, "min_bad": 2}
    return counts | {"schedule": "auto", "meter": QuietMachine(), "base_weights": tmp_path / "gone.gguf"}


async def waits_for(world: World, words: str) -> None:
    await until(lambda: words in world.learner.status()["reason"])


async def test_a_run_waits_for_mains_power(open_world: Open, few: dict[str, Any]) -> None:
    meter = few["meter"]
    meter.machine = UNPLUGGED
    world = await open_world(**few)
    await world.rated(1.0, 1.0, -1.0)
    await waits_for(world, "or 1 more")
    assert meter.looks == 0, "nobody looks while something else prevents a run"
    await world.rated(-1.0)
    await waits_for(world, "4 new ratings (2 good and 2 bad ready); waiting for mains power")
    assert (await world.learner.dry_run())["by_itself"] == world.learner.status()["reason"]
    assert await world.log.runs() == []
    meter.machine = Machine(load=0.1)
    await world.http.post("/burnish/resume")
    run = await world.run_when(lambda run: run.ended_at is not None, 60)
    assert run.ratings == 4
    assert meter.looks == 2, "and nobody looks all the time"


async def test_whoever_asks_for_a_run_gets_one_and_warnings(open_world: Open, few: dict[str, Any]) -> None:
    few["meter"].machine = UNPLUGGED
    world = await open_world(**few)
    await world.rated(1.0, -1.0)
    started = (await world.http.post("/burnish/train", json={})).json()
    assert started["warnings"] == ["the machine runs on battery"]
    assert (await world.ended(started["run_id"], 60)).status == "failed"
    typed = await chat_actions(world.learner, no_reset, "ann")["train"]("")
    assert typed.endswith("shows how it goes. But the machine runs on battery")


async def test_a_run_waits_for_the_memory_that_one_took(open_world: Open, few: dict[str, Any]) -> None:
    few["meter"].machine = FULL
    world = await open_world(**few)
    made = write_peft(world.data / "made", random_lora(1))
    for took in (3 * GB, 2 * GB):
        register(world.registry, made, world.host.base_digest, metrics={"peak_rss_bytes": took})
    await world.rated(1.0, 1.0, -1.0, -1.0)
    await waits_for(world, "waiting for memory: a run takes about 3.0 GB, and 1.0 GB are free")
    world = await open_world(**few, memory_gb=1.5)
    await waits_for(world, "a run takes about 1.5 GB")
    world = await open_world(**few, memory_gb=0)
    assert (await world.run_when(lambda run: run.ended_at is not None, 60)).status == "failed"


class Broken(QuietMachine):
    def now(self) -> Machine:
        raise OSError("no such sensor")

    async def measured(self) -> Machine:
        return self.now()


async def test_a_machine_that_cannot_be_read_prevents_no_run(open_world: Open, few: dict[str, Any]) -> None:
    world = await open_world(**few | {"meter": Broken()})
    await world.rated(1.0, 1.0, -1.0, -1.0)
    await world.run_when(lambda run: run.ended_at is not None, 60)
    assert (await world.http.post("/burnish/train", json={})).json()["warnings"] == []
