from __future__ import annotations

import asyncio
import os
import signal

import pytest

from burnish.adapters.errors import AdapterError, CorruptAdapter, EngineError, IncompatibleAdapter
from burnish.adapters.hosts.embedded import EmbeddedHost
from burnish.adapters.registry import EVENTS
from burnish.adapters.swap import Swap
from tests.adapters.engines import PROMPT
from tests.support.engine import answer, deltas
from tests.support.lora import Make
from tests.support.patience import within


async def serves_only(swap: Swap, number: int) -> bool:
    """Whether one version is live by the registry and by the route, and the engine has no other."""
    live = [swap.registry.live(), swap.route.live.version]
    return [*live, *await swap.host.served()] == [number] * 3


async def test_promote_then_roll_back_to_a_version_and_to_the_base_model(swap: Swap, make: Make) -> None:
    untouched = await answer(await swap.host.load(None), PROMPT)
    first, second = make(1), make(2)
    texts = []
    for version in (None, first, second, first, None):
        done = await swap.go_live(version, "as the user wished")
        number = version.number if version else 0
        assert done.version == number == swap.registry.live()
        with swap.route.lease() as lease:
            assert lease.endpoint.version == number
            texts.append(await answer(lease.endpoint, PROMPT))
        await swap.settled()
        assert list(await swap.host.served()) == [number], "the replaced version was unloaded"
        assert list(swap.route.resident()) == [number]
    base, v1, v2, v1_again, base_again = texts
    assert base == base_again == untouched, "greedy answers equal the untouched model's exactly"
    assert v1 == v1_again
    assert len({base, v1, v2}) == 3
    lived = [event for event in swap.registry.events() if event.state == "live"]
    assert [(event.version, event.details["replaced"]) for event in lived] == [(1, 0), (2, 1), (1, 2), (0, 1)]
    assert all(0 < event.details["seconds"] < within(60) for event in lived)


async def test_a_stream_ends_on_the_version_on_which_it_began(swap: Swap, make: Make) -> None:
    await swap.go_live(make(1), "first")
    with swap.route.lease() as lease:
        expected = await answer(lease.endpoint, PROMPT, 64)
        stream = deltas(lease.endpoint, PROMPT, 64)
        text = (await anext(stream)).text
        await swap.go_live(make(2), "second")
        await asyncio.sleep(0)
        text += "".join([delta.text async for delta in stream])
        assert text == expected
        assert 1 in await swap.host.served(), "never unloaded while in use"
    await swap.settled()
    assert list(await swap.host.served()) == [2]


async def test_a_version_that_is_live_again_before_it_drained_stays(swap: Swap, make: Make) -> None:
    first = make(1)
    await swap.go_live(first, "first")
    lease = swap.route.lease()
    await swap.go_live(make(2), "second")
    await swap.go_live(first, "back")
    lease.release()
    await swap.settled()
    assert await serves_only(swap, 1)


async def test_whatever_fails_before_the_commit_leaves_all_as_it_was(swap: Swap, make: Make) -> None:
    good = make(1)
    await swap.go_live(good, "good")
    wrong_base, damaged = make(2, base_digest="sha256:0000"), make(3)
    (damaged.path / "adapter_model.safetensors").write_bytes(b"not what was registered")
    history = swap.registry.events()
    for version, error in ((wrong_base, IncompatibleAdapter), (damaged, CorruptAdapter)):
        with pytest.raises(error):
            await swap.go_live(version, "never")
        assert swap.registry.events() == history
        assert await serves_only(swap, 1)


async def test_a_commit_that_cannot_be_written_is_undone(swap: Swap, make: Make) -> None:
    await swap.go_live(make(1), "good")
    second = make(2)
    log = swap.registry.root / EVENTS
    content = log.read_bytes()
    log.unlink()
    log.mkdir()  # whoever runs the tests, even root, cannot append to a directory
    try:
        with pytest.raises((OSError, AdapterError)):
            await swap.go_live(second, "disk trouble")
    finally:
        log.rmdir()
        log.write_bytes(content)
    assert await serves_only(swap, 1)


async def test_swaps_are_serialised(swap: Swap, make: Make) -> None:
    versions = [make(seed) for seed in (1, 2, 3)]
    await asyncio.gather(*(swap.go_live(version, "all at once") for version in versions))
    await swap.settled()
    assert await serves_only(swap, swap.registry.live())


async def test_a_staged_version_is_reached_by_name_only(swap: Swap, make: Make) -> None:
    await swap.go_live(None, "start")
    candidate = make(1)
    staged = await swap.stage(candidate)
    lease = swap.route.lease_version(1)
    assert lease.endpoint == staged
    assert swap.route.live.version == 0
    assert swap.registry.live() == 0
    retiring = swap.retire(1)
    assert 1 in await swap.host.served(), "the lease from above is still out"
    assert not retiring.done()
    lease.release()
    await retiring
    assert list(await swap.host.served()) == [0]


async def test_a_staged_version_goes_live_without_a_load(swap: Swap, host: EmbeddedHost, make: Make) -> None:
    await swap.go_live(None, "start")
    candidate = make(1)
    staged = await swap.stage(candidate)
    process = host.processes()[1]
    await swap.go_live(candidate, "gate passed")
    assert swap.route.live == staged
    assert host.processes()[1] == process
    await swap.retire(1)
    assert 1 in await swap.host.served(), "a live version stays"


async def test_an_engine_that_dies_is_an_error(swap: Swap, host: EmbeddedHost, make: Make) -> None:
    await swap.go_live(None, "start")
    candidate = make(1)

    async def kill_it() -> None:
        while 1 not in host.processes():
            await asyncio.sleep(0)
        os.kill(host.processes()[1], signal.SIGKILL)

    killing = asyncio.ensure_future(kill_it())
    with pytest.raises(EngineError):
        await swap.go_live(candidate, "never")
    await killing
    assert await serves_only(swap, 0)
