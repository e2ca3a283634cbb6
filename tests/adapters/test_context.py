from __future__ import annotations

import logging
from pathlib import Path

import psutil
import pytest

from burnish.adapters.catalogue import find
from burnish.adapters.errors import EngineError
from burnish.adapters.hosts.base import Window
from burnish.adapters.hosts.context import MAX_RESIDENT, Needs, memory_of, read_needs, window
from burnish.adapters.hosts.embedded import EmbeddedHost
from burnish.adapters.hosts.fetch import SMALL_MODEL, ensure_small_model
from tests.support.tiny_gguf import TINY, random_llama

GB = 10**9
SMALL_TOKEN_BYTES = 30 * 3 * (64 + 64) * 2
"""30 layers, 3 heads for keys and values, each 64 wide, 16 bits."""


def of_small(context: int | None, parallel: int | None, free_bytes: int | None) -> Window:
    return window(ensure_small_model(), context, parallel, children=MAX_RESIDENT, free_bytes=free_bytes)


@pytest.mark.parametrize(
    ("free_bytes", "context"),
    [
        (64 * GB, 8192),  # no more than it was trained for
        (10 * GB, 6656),  # a quarter: 2.5 GB for 4 x 4 slots
        (8 * GB, 5376),
        (4 * GB, 4096),
        (None, 4096),
    ],
)
def test_the_default_is_what_a_quarter_of_the_free_memory_holds(free_bytes: int | None, context: int) -> None:
    assert of_small(None, None, free_bytes) == Window(context, 4, 8192)
    if free_bytes and 4096 < context < 8192:
        more = MAX_RESIDENT * 4 * SMALL_TOKEN_BYTES
        assert more * context <= free_bytes / 4 < more * (context + 256)


def test_the_default_is_no_longer_than_agents_need_nor_than_the_model_was_trained_for(tmp_path: Path) -> None:
    for trained, context in ((2048, 2048), (131_072, 32_768)):
        model = random_llama(tmp_path / f"{trained}.gguf", keys={"context_length": trained})
        assert window(model, None, None, children=4, free_bytes=64 * GB) == Window(context, 4, trained)
        assert window(model, trained, 1, children=4, free_bytes=64 * GB).context == trained


@pytest.mark.parametrize(
    ("context", "parallel", "free_bytes", "says"),
    [
        (8193, None, 64 * GB, "trained for: set it to 8192 at most"),
        (8192, None, 2 * GB, "3.5 GB for 4 versions at a time, and 2.0 GB are free: set context to 4096"),
        (8192, 16, 8 * GB, "set context to 5120 at most"),
        (None, 64, 8 * GB, "set a smaller parallel"),
    ],
)
def test_values_that_cannot_be_are_refused_with_those_that_can(
    context: int | None, parallel: int | None, free_bytes: int, says: str
) -> None:
    with pytest.raises(EngineError, match=says) as caught:
        of_small(context, parallel, free_bytes)
    assert "\n" not in str(caught.value)


def test_a_default_that_does_not_fit_is_said_and_not_refused(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert of_small(None, None, GB).context == 4096
    assert "takes up to 1.9 GB for 4 versions at a time, and 1.0 GB are free" in caplog.text


def test_the_cache_of_a_token_is_read_from_the_header(tmp_path: Path) -> None:
    small = ensure_small_model()
    assert read_needs(small) == Needs(8192, SMALL_TOKEN_BYTES, small.stat().st_size)
    cached = TINY.blocks * TINY.kv_heads * TINY.head_dim
    assert read_needs(random_llama(tmp_path / "tiny.gguf")).token_bytes == cached * 2 * 2
    heads = [1] + [0] * (TINY.blocks - 1)
    uneven = random_llama(tmp_path / "uneven.gguf", keys={"attention.head_count_kv": heads})
    assert read_needs(uneven).token_bytes == TINY.head_dim * 2 * 2, "only one layer has a cache"


async def test_an_engine_takes_the_memory_that_was_computed(tmp_path: Path) -> None:
    model = ensure_small_model()
    host = EmbeddedHost(model, base_model=SMALL_MODEL, state_dir=tmp_path / "state", context=8192, parallel=2)
    try:
        await host.load(None)
        used = psutil.Process(host.processes()[0]).memory_info()
        taken = used.rss - used.shared  # without the weights, which are mapped
    finally:
        await host.close()
    needs = read_needs(model)
    computed = needs.total(8192, 2, children=1) - needs.weights_bytes
    assert taken == pytest.approx(computed, rel=0.15)


@pytest.mark.parametrize(("context", "parallel"), [(None, None), (8192, None), (4096, 1), (None, 2)])
def test_the_memory_of_a_model_is_that_of_the_window_that_it_gets(
    context: int | None, parallel: int | None
) -> None:
    model, path = find(SMALL_MODEL), ensure_small_model()
    assert model
    free = 10 * GB
    served = window(path, context, parallel, children=MAX_RESIDENT, free_bytes=free)
    expected = read_needs(path).total(served.context, served.parallel, children=1)
    assert memory_of(model, context, parallel, free) == pytest.approx(expected, abs=10**6)


def test_layers_that_look_back_a_little_take_less_memory() -> None:
    model = find("gemma-3-4b")
    assert model
    assert memory_of(model, 32_768, 1, None) < model.mb * 10**6 + 32_768 * model.token_bytes
