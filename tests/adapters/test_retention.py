"""Old versions lose their weights, but none that anybody needs."""

from __future__ import annotations

from pathlib import Path

import pytest

from burnish.adapters.errors import IllegalTransition, PrunedVersion
from burnish.adapters.manifest import AdapterVersion
from burnish.adapters.registry import MANIFEST, Registry
from burnish.adapters.swap import Swap
from tests.support.engine import answer
from tests.support.lora import Make


def states(registry: Registry) -> list[str]:
    return [version.state for version in registry.versions()]


def files(version: AdapterVersion) -> list[str]:
    return sorted(path.name for path in version.path.iterdir())


def converted(engine_state: Path, number: int) -> list[Path]:
    return list(engine_state.glob(f"v{number:04d}-*"))


async def test_what_is_live_or_used_stays(swap: Swap, make: Make, engine_state: Path) -> None:
    first, second, third, fourth, fifth = (make(seed) for seed in range(1, 6))
    registry = swap.registry
    for version in (first, second):
        await swap.go_live(version, "test")
    registry.record(fourth.number, "rejected", "test")
    await swap.stage(third)
    await swap.settled()
    with swap.route.lease_version(3):
        assert await swap.prune(keep=1) == [4]
        assert states(registry) == ["retired", "live", "candidate", "pruned", "candidate"]
    assert files(fourth) == [MANIFEST]
    assert len(files(third)) == len(files(fifth)) == 3
    await swap.retire(3)
    assert converted(engine_state, 3)
    assert await swap.prune(keep=1) == [3]
    assert not converted(engine_state, 3), "nor what it was converted to"
    assert await swap.prune(keep=1) == []
    assert registry.get(4).manifest == fourth.manifest
    assert [event.state for event in registry.events(4)] == ["candidate", "rejected", "pruned"]
    registry.verify(1)
    with swap.route.lease() as lease:
        assert (lease.endpoint.version, bool(await answer(lease.endpoint, "Hello?"))) == (2, True)


async def test_a_pruned_version_cannot_go_live(swap: Swap, make: Make) -> None:
    await swap.go_live(make(1), "test")
    registry = swap.registry
    registry.prune(make(2).number, "too old")
    with pytest.raises(PrunedVersion, match="no longer has weights: too old"):
        await swap.go_live(registry.get(2), "wanted back")
    assert registry.live() == 1
    for state in ("candidate", "live", "rejected"):
        with pytest.raises(IllegalTransition):
            registry.record(2, state, "wanted back")
    with pytest.raises(IllegalTransition):
        registry.prune(1, "it is live")
    registry.verify(1)


async def test_undoing_passes_over_what_is_pruned(swap: Swap, make: Make) -> None:
    registry = swap.registry
    for seed in (1, 2, 3, 4):
        make(seed)
        registry.record(seed, "live", "test")
    assert await swap.prune(keep=1) == [1, 2]
    assert registry.previous_live() == 3
    registry.record(3, "live", "undone")
    assert registry.previous_live() == 0, "the base model: what was live between has no weights"


async def test_enough_are_kept(swap: Swap, make: Make) -> None:
    for seed in (1, 2, 3):
        make(seed)
    assert await swap.prune(keep=3) == []
    assert await swap.prune(keep=2) == [1]
    make(4)
    assert await swap.prune(keep=2) == [2], "what is pruned does not count"


async def test_a_crash_before_the_weights_were_deleted_is_made_good(registry: Registry, make: Make) -> None:
    version = make(1)
    registry.record(1, "pruned", "and then it was killed")
    assert len(files(version)) == 3
    Registry(registry.root).recover()
    assert files(version) == [MANIFEST]
    assert states(registry) == ["pruned"]
    assert make(2).number == 2
