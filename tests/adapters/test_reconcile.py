from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import psutil
import pytest

from burnish.adapters.errors import EngineUnreachable
from burnish.adapters.hosts.base import Endpoint
from burnish.adapters.hosts.embedded import EmbeddedHost
from burnish.adapters.manifest import AdapterVersion
from burnish.adapters.reconcile import MAX_FAILURES, Reconciler
from burnish.adapters.registry import Registry
from burnish.adapters.route import LiveRoute
from burnish.adapters.swap import Swap
from tests.adapters.engines import PROMPT, ask_within
from tests.support.engine import answer
from tests.support.lora import Make
from tests.support.patience import within


async def restarted(swap: Swap, host: EmbeddedHost) -> Swap:
    """The engine is gone, and so is the proxy's memory of it; the registry stays."""
    await swap.settled()
    await host.close()
    return Swap(swap.registry, host, LiveRoute())


def kill(host: EmbeddedHost, version: int) -> None:
    os.kill(host.processes()[version], signal.SIGKILL)


async def test_the_base_model_is_left_alone_until_its_engine_is_gone(swap: Swap, host: EmbeddedHost) -> None:
    reconciler = Reconciler(swap)
    done = await reconciler.reconcile_once()
    assert done.actions == ("the base model serves again",)
    assert done.fault is None
    assert swap.route.live.version == 0
    assert (await reconciler.reconcile_once()).actions == ()
    kill(host, 0)
    done = await reconciler.reconcile_once()
    assert done.actions == ("the engine of the base model is gone", "the base model serves again")


async def test_what_was_live_is_live_after_a_crash(swap: Swap, host: EmbeddedHost, make: Make) -> None:
    version = make(1)
    await swap.go_live(version, "before the crash")
    with swap.route.lease() as lease:
        before = await answer(lease.endpoint, PROMPT)
    after = await restarted(swap, host)
    await Reconciler(after).reconcile_once()
    with after.route.lease() as lease:
        assert lease.endpoint.version == 1
        assert await answer(lease.endpoint, PROMPT) == before


async def test_a_crash_between_commit_and_flip_is_finished(swap: Swap, make: Make) -> None:
    await swap.go_live(None, "start")
    version = make(1)
    swap.registry.record(version.number, "live", "committed, then killed")
    await Reconciler(swap).reconcile_once()
    await swap.settled()
    assert swap.route.live.version == 1
    assert list(await swap.host.served()) == [1]


async def test_requests_wait_for_a_killed_engine(swap: Swap, host: EmbeddedHost, make: Make) -> None:
    await swap.go_live(make(1), "start")
    old = swap.route.live
    looking = asyncio.ensure_future(Reconciler(swap).run(interval_s=3600))
    try:
        kill(host, 1)
        swap.route.lost(old.url)
        await swap.route.wait_live(within(30))
        with swap.route.lease() as lease:
            assert lease.endpoint.url != old.url
            assert await answer(lease.endpoint, PROMPT)
    finally:
        looking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await looking


async def test_an_engine_that_stands_still_is_replaced(
    swap: Swap, host: EmbeddedHost, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    await swap.go_live(make(1), "start")
    stopped, before = host.processes()[1], swap.route.live
    ask_within(monkeypatch, 2)
    os.kill(stopped, signal.SIGSTOP)
    while psutil.Process(stopped).status() != psutil.STATUS_STOPPED:  # it may answer for a moment more
        await asyncio.sleep(0.01)
    done = await Reconciler(swap).reconcile_once()
    assert done.actions == ("the engine of v1 is gone", "v1 serves again")
    assert not psutil.pid_exists(stopped)
    with swap.route.lease() as lease:
        assert lease.endpoint != before
        assert await answer(lease.endpoint, PROMPT)


async def test_orphans_and_dead_versions_are_unloaded(swap: Swap, host: EmbeddedHost, make: Make) -> None:
    reconciler = Reconciler(swap)
    await reconciler.reconcile_once()
    await swap.stage(make(1))
    await host.load(make(2))
    done = await reconciler.reconcile_once()
    assert done.actions == ("unloaded v2, which no request used",)
    assert sorted(await host.served()) == [0, 1]
    kill(host, 1)
    await reconciler.reconcile_once()
    assert list(swap.route.resident()) == [0]


async def test_a_live_version_that_was_damaged_gives_way_to_the_one_before_loudly(
    swap: Swap, host: EmbeddedHost, make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = make(1), make(2)
    for version in (first, second):
        await swap.go_live(version, "passed the gate")
    (second.path / "adapter_model.safetensors").write_bytes(b"bit rot")
    after = await restarted(swap, host)
    reconciler = Reconciler(after)
    history = swap.registry.events()
    done = await reconciler.reconcile_once()
    assert after.route.live.version == 1
    assert "has changed" in str(done.fault)
    assert "v2 cannot be served" in str(reconciler.degraded)
    assert "v1 is live instead" in caplog.text
    *kept, added = swap.registry.events()
    assert kept == history, "history is added to, never rewritten"
    assert (added.version, added.state, added.details) == (1, "live", {"replaced": 2})
    assert "v2 cannot be served" in added.reason
    assert (await reconciler.reconcile_once()).actions == ()
    assert reconciler.degraded, "still said"
    await after.go_live(None, "the user decides")
    await reconciler.reconcile_once()
    assert reconciler.degraded is None
    await after.settled()


async def test_the_base_model_serves_if_no_version_can(swap: Swap, host: EmbeddedHost, make: Make) -> None:
    first, second = make(1), make(2)
    for version in (first, second):
        await swap.go_live(version, "passed the gate")
        (version.path / "adapter_model.safetensors").write_bytes(b"bit rot")
    after = await restarted(swap, host)
    await Reconciler(after).reconcile_once()
    assert after.route.live.version == 0
    assert swap.registry.live() == 0


async def test_an_engine_that_cannot_start_is_said_and_retried_without_giving_the_version_up(
    registry: Registry, make: Make, tiny: Path, tmp_path: Path
) -> None:
    away = tmp_path / "model.gguf"
    away.symlink_to(tiny)
    host = EmbeddedHost(away, base_model="smollm2", state_dir=tmp_path / "state")
    swap = Swap(registry, host, LiveRoute())
    reconciler = Reconciler(swap)
    try:
        await swap.go_live(make(1), "passed the gate")
        await host.close()
        away.unlink()
        for _ in range(4):
            done = await reconciler.reconcile_once()
            assert done.fault and "model.gguf" in done.fault
            assert not any("serves" in action for action in done.actions)
        assert registry.live() == 1, "an engine's fault is not the version's"
        away.symlink_to(tiny)
        assert (await reconciler.reconcile_once()).fault is None
        assert swap.route.live and swap.route.live.version == 1
    finally:
        await host.close()


class Starting(EmbeddedHost):
    """An engine that isn't there for some requests, as while it starts again."""

    refusals = 0

    async def load(self, version: AdapterVersion | None) -> Endpoint:
        if self.refusals:
            self.refusals -= 1
            raise EngineUnreachable("nothing listens there")
        return await super().load(version)


async def test_an_engine_that_takes_long_to_start_again_costs_no_version_its_place(
    tiny: Path, engine_state: Path, registry: Registry, make: Make
) -> None:
    host = Starting(tiny, base_model="smollm2", state_dir=engine_state)
    version = make(1)
    registry.record(version.number, "live", "for the test", replaced=0)
    host.refusals = 2 * MAX_FAILURES
    reconciler = Reconciler(Swap(registry, host, LiveRoute()))
    try:
        faults = [(await reconciler.reconcile_once()).fault for _ in range(2 * MAX_FAILURES)]
        assert faults == ["nothing listens there"] * 2 * MAX_FAILURES
        assert (await reconciler.reconcile_once()).actions == ("v1 serves again",)
        assert registry.live() == version.number
    finally:
        await host.close()
