"""The contract of every host: load, probe, serve, unload, survive a restart, and say what went wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from burnish.adapters.errors import CorruptAdapter, EngineError, EngineRefused, IncompatibleAdapter
from burnish.adapters.proof import generates
from burnish.adapters.reconcile import Reconciler
from burnish.adapters.registry import Registry
from burnish.adapters.route import LiveRoute
from burnish.adapters.swap import Swap
from tests.adapters.engines import KEY, KINDS, OTHER_DIGEST, PROMPT, Embedded, Engine, full_disk
from tests.support.engine import answer, answers_during, deltas
from tests.support.lora import register, write_peft
from tests.support.tiny_gguf import TINY, tiny_lora

FOREIGN = [kind for kind in KINDS if kind is not Embedded]
COMPUTING = [kind for kind in FOREIGN if kind.answers]
CONVERTING = [kind for kind in KINDS if kind.converts]
WITH_KEY = [kind for kind in KINDS if kind.takes_key]


def left(engine: Engine) -> list[str]:
    """The converted files that lie in the host's directory."""
    return [path.name for path in engine.state.glob("*") if path.suffix != ".log"]


async def test_versions_are_served_side_by_side_until_they_are_unloaded(engine: Engine) -> None:
    host = engine.open()
    base = await host.load(None)
    await host.check()
    first, second = await host.load(engine.make(1)), await host.load(engine.make(2))
    served = {0: base, 1: first, 2: second}
    assert await host.served() == served
    assert [endpoint.version for endpoint in served.values()] == [0, 1, 2]
    for endpoint in served.values():
        await generates(host, endpoint)
    if engine.answers:
        texts = [await answer(endpoint, PROMPT) for endpoint in served.values()]
        assert len(set(texts)) == 3
        assert texts == [await answer(endpoint, PROMPT) for endpoint in served.values()]
        async for delta in deltas(first, PROMPT, tokens=4):
            assert delta.model == first.model
    assert await host.load(engine.versions[0]) == first, "loading twice is loading once"
    for number in (1, 1, 77):
        await host.unload(number)
    assert await host.served() == {0: base, 2: second}
    await host.unload(0)
    assert (0 in await host.served()) is engine.base_stays


async def test_a_version_is_served_again_after_the_engine_forgot_it(engine: Engine, tmp_path: Path) -> None:
    host = engine.open()
    registry = Registry(tmp_path / "adapters")
    swap = Swap(registry, host, LiveRoute())
    reconciler = Reconciler(swap)
    await reconciler.reconcile_once()
    trained = write_peft(tmp_path / "trained", tiny_lora(TINY, 1))
    version = register(registry, trained, base_model="tiny", base_digest=engine.digest)
    engine.versions.append(version)
    await swap.go_live(version, "test")
    await engine.restart()
    assert (await reconciler.reconcile_once()).fault is None
    with swap.route.lease() as lease:
        assert lease.endpoint.version == 1
        await generates(host, lease.endpoint)
    await swap.close()


@pytest.mark.parametrize(
    ("made", "error", "words"),
    [
        ({"digest": OTHER_DIGEST}, IncompatibleAdapter, "trained on"),
        ({"use_dora": True}, IncompatibleAdapter, "use_dora"),
        ({"modules_to_save": ["lm_head"]}, IncompatibleAdapter, "modules_to_save"),
        ({"r": None}, CorruptAdapter, "adapter_config.json"),
    ],
)
async def test_a_version_that_cannot_be_served_is_refused_and_leaves_nothing(
    engine: Engine, made: dict[str, Any], error: type[Exception], words: str
) -> None:
    host = engine.open()
    before = await host.served()
    with pytest.raises(error, match=words):
        await host.load(engine.make(1, **made))
    assert await host.served() == before
    assert left(engine) == []


@pytest.mark.parametrize("kind", CONVERTING)
async def test_damaged_weights_are_refused_and_leave_nothing(engine: Engine) -> None:
    host, version = engine.open(), engine.make(1)
    weights = version.path / "adapter_model.safetensors"
    whole = weights.read_bytes()
    for damaged in (whole[:-1], whole[:-4] + b"\0\0\xc0\x7f"):  # cut; NaN as the last number
        weights.write_bytes(damaged)
        with pytest.raises(CorruptAdapter):
            await host.load(version)
        assert left(engine) == []


@pytest.mark.parametrize("kind", CONVERTING)
async def test_a_full_disk_is_named_and_leaves_nothing(engine: Engine) -> None:
    host, version = engine.open(), engine.make(1)
    with full_disk(), pytest.raises(EngineError, match=r"tiny@v1 .*make room there") as refused:
        await host.load(version)
    assert "cannot write" in str(refused.value)
    assert left(engine) == []
    await generates(host, await host.load(version))


@pytest.mark.parametrize("kind", FOREIGN)
async def test_an_engine_that_is_down_serves_nothing(engine: Engine) -> None:
    host = engine.open(url="http://127.0.0.1:9")
    assert await host.served() == {}
    for version in (None, engine.make(1)):
        with pytest.raises(EngineError, match="cannot be reached"):
            await host.load(version)


@pytest.mark.parametrize("kind", WITH_KEY)
async def test_the_key_goes_with_every_request_and_shows_nowhere(engine: Engine) -> None:
    stranger = engine.open(api_key="wrong")
    with pytest.raises(EngineRefused, match="401"):
        await stranger.load(None)
    assert await stranger.served() == {}
    host = engine.open()
    endpoint = await host.load(engine.make(1))
    await generates(host, endpoint)
    assert endpoint.api_key == KEY
    assert KEY not in repr(endpoint)


@pytest.mark.parametrize("kind", COMPUTING)
async def test_streams_go_on_during_a_load_and_an_unload_of_another_version(engine: Engine) -> None:
    host = engine.open()
    first = await host.load(engine.make(1))
    quiet = await answer(first, PROMPT, tokens=60)
    during = await answers_during(host.load(engine.make(2)), first, PROMPT)
    during += await answers_during(host.unload(2), first, PROMPT)
    assert set(during) == {quiet}


@pytest.mark.parametrize("kind", FOREIGN)
async def test_two_proxies_on_one_engine_do_not_disturb_each_other(engine: Engine) -> None:
    ours, theirs = engine.make(7, seed=1), engine.make(7, seed=2)
    mine = engine.open(versions=lambda: [ours])
    other = engine.open(versions=lambda: [theirs], state_dir=engine.folder / "state-2")
    first, second = await mine.load(ours), await other.load(theirs)
    assert (first.model, first.fields) != (second.model, second.fields), "same number, other weights"
    assert (await mine.served())[7] == first
    await mine.unload(7)
    assert 7 not in await mine.served()
    assert (await other.served())[7] == second
    await generates(other, second)
