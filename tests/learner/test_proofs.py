"""Versions that came without the trainer's figures get them: at their first use, or while the learner is idle."""

from __future__ import annotations

from pathlib import Path

import pytest

from burnish.adapters.reconcile import Reconciler
from tests.learner.conftest import Open, World
from tests.proxy.log.exchanges import until
from tests.support.lora import register, write_peft
from tests.support.tiny_gguf import TINY, tiny_lora

pytestmark = pytest.mark.slow


def imported(world: World, seed: int) -> int:
    files = write_peft(world.data / f"made-{seed}", tiny_lora(TINY, seed))
    version = register(world.registry, files, world.host.base_digest)
    world.registry.record(version.number, "candidate", "imported", awaits="promotion")
    return version.number


async def test_an_imported_version_is_proved_by_figures_of_its_first_use(
    open_world: Open, tiny_model: Path
) -> None:
    world = await open_world(model=tiny_model, proofs=True)
    number = imported(world, 1)
    await world.learner.promote(number, "I trust it", force=False)
    assert len(world.registry.get(number).manifest.proof) == 8
    assert world.swap.proof(number, world.swap.route.live) == "proven"
    assert not list((world.data / "jobs").glob("proof_*"))


async def test_without_a_trainer_it_is_weakly_proven(open_world: Open, tiny_model: Path) -> None:
    world = await open_world(model=tiny_model)
    number = imported(world, 1)
    await world.learner.promote(number, "I trust it", force=False)
    assert world.registry.get(number).manifest.proof == ()
    assert world.swap.proof(number, world.swap.route.live) == "weakly proven"


async def test_a_live_version_of_an_earlier_release_gets_figures_when_the_learner_is_idle(
    open_world: Open, tiny_model: Path
) -> None:
    world = await open_world(model=tiny_model)
    await world.learner.promote(imported(world, 1), "before the update", force=False)
    world = await open_world(model=tiny_model, proofs=True)
    await until(lambda: bool(world.registry.get(1).manifest.proof))
    await Reconciler(world.swap).reconcile_once()
    assert world.swap.proof(1, world.swap.route.live) == "proven"
