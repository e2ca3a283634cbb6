from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from burnish.adapters.errors import EngineError, UnknownVersion
from burnish.adapters.hosts.base import Endpoint
from burnish.adapters.route import Balance, Lease, LiveRoute
from tests.support.patience import within


def at(version: int, port: int = 1) -> Endpoint:
    return Endpoint(f"http://127.0.0.1:{port}{version}", f"m@v{version}", version)


def test_nothing_is_live_at_first() -> None:
    with pytest.raises(EngineError, match="no version is live"):
        LiveRoute().lease()


def test_releasing_twice_counts_once() -> None:
    route = LiveRoute()
    route.flip(at(1))
    first, second = route.lease(), route.lease()
    first.release()
    first.release()
    assert route.in_flight(1) == 1
    second.release()


def test_a_resident_version_can_be_named_and_an_absent_one_cannot() -> None:
    route = LiveRoute()
    route.flip(at(0))
    route.add(at(3))
    assert route.lease_version(3).endpoint == at(3)
    assert route.lease().endpoint == at(0)
    route.remove(3)
    with pytest.raises(UnknownVersion, match=r"version 3 is not loaded; loaded are \[0\]"):
        route.lease_version(3)
    assert route.in_flight(3) == 1, "the request under way still counts"


async def test_draining_waits_for_the_last_lease() -> None:
    route = LiveRoute()
    route.flip(at(1))
    leases = [route.lease() for _ in range(3)]
    await route.drained(2, timeout_s=0)
    with pytest.raises(TimeoutError):
        await route.drained(1, timeout_s=0.01)
    async with asyncio.TaskGroup() as tasks:
        drained = tasks.create_task(route.drained(1, timeout_s=within(5)))
        for lease in leases:
            await asyncio.sleep(0)
            assert not drained.done()
            lease.release()


async def test_a_lost_engine_makes_requests_wait_until_it_is_back() -> None:
    route = LiveRoute()
    route.flip(at(1))
    await route.wait_live(0)
    route.lost(at(1).url)
    assert route.live is None
    assert route.trouble.is_set()
    with pytest.raises(TimeoutError):
        await route.wait_live(0.01)
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(route.wait_live(within(5)))
        await asyncio.sleep(0)
        route.flip(at(1, port=2))
        await waiting
    assert route.lease().endpoint == at(1, port=2)
    route.lost(at(1).url)
    assert route.live == at(1, port=2), "a late report does not take the new engine down"


STEPS = st.sampled_from(["lease", "named", "release", "flip", "add", "remove"])


@given(st.lists(st.tuples(STEPS, st.integers(0, 3))))
def test_counts_equal_the_leases_that_are_out(steps: list[tuple[str, int]]) -> None:
    async def play() -> None:
        route, out = LiveRoute(), list[Lease]()
        for step, version in steps:
            if step == "lease" and route.live:
                out.append(route.lease())
            elif step == "named" and version in route.resident():
                out.append(route.lease_version(version))
            elif step == "release" and out:
                out.pop(version % len(out)).release()
            elif step == "flip":
                route.flip(at(version))
            elif step == "add":
                route.add(at(version))
            elif step == "remove":
                route.remove(version)
            counted = Counter(lease.endpoint.version for lease in out)
            assert [route.in_flight(n) for n in range(4)] == [counted[n] for n in range(4)]
            assert route.live is None or route.resident()[route.live.version] == route.live
            for n in range(4):
                if counted[n]:
                    with pytest.raises(TimeoutError):
                        await route.drained(n, timeout_s=0)
                else:
                    await route.drained(n, timeout_s=0)

    asyncio.run(play())


def test_equals_take_turns() -> None:
    balance = Balance()
    picked = []
    for _ in range(6):
        picked.append(balance.pick(["a", "b", "c"]))
        balance.done(picked[-1])
    assert sorted(picked) == ["a", "a", "b", "b", "c", "c"]


@given(st.integers(1, 5), st.lists(st.one_of(st.none(), st.integers(0, 50)), max_size=60))
def test_loads_differ_by_one_at_most_and_never_drift(servers: int, steps: list[int | None]) -> None:
    balance, urls = Balance(), [f"http://{n}" for n in range(servers)]
    out: list[str] = []
    for step in steps:
        if step is None or not out:
            loads = {url: out.count(url) for url in urls}
            picked = balance.pick(urls)
            assert loads[picked] == min(loads.values())
            out.append(picked)
        else:
            balance.done(out.pop(step % len(out)))
