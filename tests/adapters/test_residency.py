"""Which versions stay in an engine that keeps them: within its limit, least recently used out first."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from burnish.adapters.hosts.vllm import VllmHost
from burnish.adapters.manifest import AdapterVersion
from burnish.adapters.reconcile import Reconciler
from burnish.adapters.registry import Registry
from burnish.adapters.route import LiveRoute
from burnish.adapters.swap import Swap
from tests.support.inprocess import listening
from tests.support.lora import DIGEST, register, tensors, write_adapter
from tests.support.vllm_double import VllmDouble


@pytest.fixture
def versions(registry: Registry, tmp_path: Path) -> list[AdapterVersion]:
    trained = [write_adapter(tmp_path / f"{seed}", tensors(fill=seed)) for seed in range(1, 7)]
    return [register(registry, directory) for directory in trained]


@pytest.fixture
async def swap(registry: Registry, versions: list[AdapterVersion]) -> AsyncIterator[Swap]:
    async with listening(VllmDouble().app()) as url:
        host = VllmHost(url, base_model="smollm2", base_digest=DIGEST, versions=lambda: versions)
        swap = Swap(registry, host, LiveRoute())
        await swap.go_live(None, "start")
        yield swap
        await swap.close()
        await host.close()


async def loaded(swap: Swap) -> list[int]:
    await swap.settled()
    found = sorted(await swap.host.served())
    assert found == sorted(swap.route.resident()), "what is loaded can be asked for by name"
    return found


async def test_replaced_versions_stay_while_there_is_room(swap: Swap, versions: list[AdapterVersion]) -> None:
    for version in versions[:3]:
        await swap.go_live(version, "better")
    assert await loaded(swap) == [0, 1, 2, 3]
    await swap.go_live(versions[3], "better")
    assert await loaded(swap) == [0, 2, 3, 4]
    assert (await swap.go_live(versions[1], "rolled back")).replaced == 4
    assert await loaded(swap) == [0, 2, 3, 4]


async def test_the_least_recently_used_goes_first(swap: Swap, versions: list[AdapterVersion]) -> None:
    for version in versions[:3]:
        await swap.go_live(version, "better")
    with swap.route.lease_version(1):
        pass
    await swap.go_live(versions[3], "better")
    assert await loaded(swap) == [0, 1, 3, 4]


async def test_what_is_used_or_judged_stays(swap: Swap, versions: list[AdapterVersion]) -> None:
    await swap.go_live(versions[0], "better")
    in_use = swap.route.lease()
    await swap.go_live(versions[1], "better")
    await swap.stage(versions[2])
    await swap.go_live(versions[3], "better")
    assert await loaded(swap) == [0, 1, 3, 4]
    in_use.release()
    await swap.retire(3)
    assert await loaded(swap) == [0, 1, 4], "a candidate that was rejected is not kept"


async def test_a_full_engine_is_asked_for_more(swap: Swap, versions: list[AdapterVersion]) -> None:
    leases = []
    for version in versions[:5]:
        await swap.go_live(version, "better")
        leases.append(swap.route.lease())
    assert await loaded(swap) == [0, 1, 2, 3, 4, 5], "vLLM takes them; where there is no room it refuses"
    for lease in leases:
        lease.release()


async def test_the_end_leaves_what_is_live(swap: Swap, versions: list[AdapterVersion]) -> None:
    for version in versions[:3]:
        await swap.go_live(version, "better")
    await swap.close()
    assert sorted(await swap.host.served()) == [0, 3]


async def test_what_was_kept_is_left_alone_by_reconciling(swap: Swap, versions: list[AdapterVersion]) -> None:
    for version in versions[:2]:
        await swap.go_live(version, "better")
    assert (await Reconciler(swap).reconcile_once()).actions == ()
    assert await loaded(swap) == [0, 1, 2]
