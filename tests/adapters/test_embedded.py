from __future__ import annotations

import asyncio
import gc
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import aiohttp
import psutil
import pytest

from burnish.adapters.errors import CorruptAdapter, EngineError, IncompatibleAdapter, ProbeFailed
from burnish.adapters.hosts.base import Endpoint
from burnish.adapters.hosts.embedded import MAX_RESIDENT, EmbeddedHost
from burnish.adapters.hosts.fetch import ensure_small_model
from burnish.adapters.manifest import AdapterVersion
from tests.support.engine import answer, deltas, headers
from tests.support.lora import random_lora, version_of, write_peft

PROMPT = "Name three colours."
Make = Callable[..., AdapterVersion]


async def test_versions_live_side_by_side_and_answer_as_themselves(
    host: EmbeddedHost, make_version: Make
) -> None:
    base = await host.load(None)
    alone = await answer(base, PROMPT)
    first, second = [await host.load(make_version(seed)) for seed in (1, 2)]
    assert (base.model, first.model, second.model) == ("smollm2", "smollm2@v1", "smollm2@v2")
    texts = [await answer(endpoint, PROMPT) for endpoint in (base, first, second)]
    assert texts[0] == alone, "the base model answers as before"
    assert len(set(texts)) == 3
    assert await host.served() == {0: base, 1: first, 2: second}
    for endpoint in (base, first, second):
        await host.probe(endpoint)
    await host.unload(1)
    await host.unload(1)
    assert await host.served() == {0: base, 2: second}


async def test_loading_twice_is_loading_once(host: EmbeddedHost) -> None:
    first, second = await asyncio.gather(host.load(None), host.load(None))
    assert first == second
    assert len(host.processes()) == 1


async def test_an_unload_that_is_cancelled_leaves_no_zombie(host: EmbeddedHost) -> None:
    await host.load(None)
    pid = host.processes()[0]
    unloading = asyncio.ensure_future(host.unload(0))
    await asyncio.sleep(0)  # it has killed the child, and waits for its end
    unloading.cancel()
    await asyncio.wait([unloading])
    await host.close()
    assert not psutil.pid_exists(pid)


async def test_who_asks_while_a_version_goes_leaves_nothing_open(host: EmbeddedHost) -> None:
    """An unclosed session is a warning, which fails the test."""
    await host.load(None)
    await host.served()
    unloading = asyncio.ensure_future(host.unload(0))
    while not unloading.done():
        await host.served()
    assert await host.served() == {}
    gc.collect()


async def test_a_killed_child_is_noticed_and_replaced(host: EmbeddedHost) -> None:
    old = await host.load(None)
    os.kill(host.processes()[0], signal.SIGKILL)
    assert await host.served() == {}
    with pytest.raises(ProbeFailed, match="smollm2 was loaded, but a test generation failed"):
        await host.probe(old)
    new = await host.load(None)
    assert new != old
    await host.probe(new)


async def test_only_who_has_the_key_is_answered_and_no_page_may_ask(host: EmbeddedHost) -> None:
    endpoint = await host.load(None)
    assert endpoint.url.startswith("http://127.0.0.1:")
    evil = {"origin": "http://evil.example"}
    async with aiohttp.ClientSession() as session:
        for method, path in [
            ("POST", "/v1/chat/completions"),
            ("GET", "/v1/models"),
            ("POST", "/lora-adapters"),
            ("GET", "/props"),
            ("GET", "/slots"),
        ]:
            async with session.request(method, endpoint.url + path, json={}, headers=evil) as response:
                assert response.status == 401, path
                assert not response.headers.get("access-control-allow-origin")
        for path in ("/", "/index.html"):
            async with session.get(endpoint.url + path) as response:
                assert response.status in {401, 404}, "there is no web page"
        for method, path in [("GET", "/slots"), ("GET", "/metrics"), ("POST", "/props")]:
            async with session.request(
                method, endpoint.url + path, json={}, headers=headers(endpoint)
            ) as response:
                assert response.status == 501, path


async def test_the_key_shows_nowhere(host: EmbeddedHost) -> None:
    endpoint = await host.load(None)
    assert endpoint.api_key
    process = psutil.Process(host.processes()[0])
    assert endpoint.api_key not in " ".join(process.cmdline())
    assert endpoint.api_key not in str(process.environ())


def modes(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mode & 0o777 for path in [folder, *folder.iterdir()]}


async def test_state_is_private(host: EmbeddedHost, make_version: Make, engine_state: Path) -> None:
    await host.load(make_version(1))
    found = modes(engine_state)
    assert found.pop(engine_state.name) == 0o700
    assert set(found.values()) == {0o600}
    assert any(name.endswith(".gguf") for name in found)


async def test_an_adapter_of_another_base_is_refused(host: EmbeddedHost, make_version: Make) -> None:
    with pytest.raises(IncompatibleAdapter, match="trained on base weights sha256:0000"):
        await host.load(make_version(1, base_digest="sha256:0000"))
    assert host.processes() == {}


async def test_faults_of_an_adapter_keep_their_kind(host: EmbeddedHost, tmp_path: Path) -> None:
    nan = random_lora(1)
    next(iter(nan.values()))[0, 0] = float("nan")
    corrupt = version_of(write_peft(tmp_path / "a", nan), 1, host.base_digest)
    with pytest.raises(CorruptAdapter, match="NaN"):
        await host.load(corrupt)
    dora = version_of(write_peft(tmp_path / "b", random_lora(1), use_dora=True), 2, host.base_digest)
    with pytest.raises(IncompatibleAdapter, match="use_dora"):
        await host.load(dora)
    assert host.processes() == {}


async def test_a_full_disk_is_named_and_leaves_nothing(tmp_path: Path) -> None:
    host = EmbeddedHost(ensure_small_model(), base_model="smollm2", state_dir=tmp_path / "state")
    version = version_of(write_peft(tmp_path / "a", random_lora(1)), 1, host.base_digest)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))  # the engine inherits it
    try:
        with pytest.raises(EngineError, match=r"cannot write smollm2@v1 as GGUF into .*make room there"):
            await host.load(version)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [path.suffix for path in (tmp_path / "state").iterdir()] == [".log"]


async def test_a_converted_file_that_is_damaged_is_made_anew(tmp_path: Path) -> None:
    host = EmbeddedHost(ensure_small_model(), base_model="smollm2", state_dir=tmp_path / "state")
    version = version_of(write_peft(tmp_path / "a", random_lora(1)), 1, host.base_digest)
    try:
        await host.load(version)
        await host.unload(1)
        [converted] = (tmp_path / "state").glob("*.gguf")
        os.truncate(converted, 5000)
        with pytest.raises(EngineError):
            await host.load(version)
        assert host.processes() == {}
        await host.probe(await host.load(version))
    finally:
        await host.close()


async def test_a_model_that_is_missing_or_damaged_is_named(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"gone\.gguf: No such file"):
        EmbeddedHost(tmp_path / "gone.gguf", base_model="x", state_dir=tmp_path / "state")
    (tmp_path / "bad.gguf").write_bytes(b"GGUF" + bytes(100))
    host = EmbeddedHost(tmp_path / "bad.gguf", base_model="x", state_dir=tmp_path / "state")
    with pytest.raises(EngineError, match=r"bad\.gguf.*engine-v0000\.log"):
        await host.load(None)
    await host.close()


async def test_room_is_limited(host: EmbeddedHost, make_version: Make) -> None:
    for seed in range(1, MAX_RESIDENT + 1):
        await host.load(make_version(seed))
    with pytest.raises(EngineError, match="4 versions are loaded already"):
        await host.load(None)
    pid = host.processes()[1]
    os.kill(pid, signal.SIGKILL)
    while psutil.pid_exists(pid):  # it answers no more some time before it is gone
        await asyncio.sleep(0.01)
    await host.load(None)


async def test_a_cancelled_load_leaves_no_process(host: EmbeddedHost) -> None:
    before = len(psutil.Process().children())
    task = asyncio.ensure_future(host.load(None))
    while len(psutil.Process().children()) == before:
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(psutil.Process().children()) == before


async def test_four_requests_at_once_and_a_fifth_that_waits(host: EmbeddedHost) -> None:
    endpoint = await host.load(None)
    texts = await asyncio.gather(*(answer(endpoint, f"Count to {n}.", 16) for n in range(5)))
    assert all(texts)


PARENT = """
import asyncio, sys
from pathlib import Path
from burnish.adapters.hosts.embedded import EmbeddedHost
from burnish.adapters.hosts.fetch import ensure_small_model
from tests.support.engine import deltas

async def main():
    host = EmbeddedHost(ensure_small_model(), base_model="smollm2", state_dir=Path(sys.argv[1]))
    endpoint = await host.load(None)
    async for _ in deltas(endpoint, "Write a novel.", 3000, ignore_eos=True):
        if host.processes():
            print(host.processes()[0], flush=True)

asyncio.run(main())
"""


async def test_killing_the_parent_leaves_no_orphan_even_in_mid_token(tmp_path: Path) -> None:
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PARENT, str(tmp_path / "state"), stdout=asyncio.subprocess.PIPE
    )
    assert parent.stdout
    lines = [await parent.stdout.readline() for _ in range(20)]
    child = psutil.Process(int(lines[-1]))
    assert "embedded_child" in " ".join(child.cmdline())
    parent.kill()
    await parent.communicate()
    began = time.monotonic()
    while child.is_running() and child.status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() - began < 3, "the engine outlived its parent"
        await asyncio.sleep(0.01)


async def test_ctrl_c_reaches_the_parent_only(host: EmbeddedHost) -> None:
    endpoint = await host.load(None)
    os.kill(host.processes()[0], signal.SIGINT)
    assert await answer(endpoint, PROMPT)


async def test_a_disconnected_client_frees_its_slot(host: EmbeddedHost) -> None:
    endpoint = await host.load(None)
    for _ in range(8):
        stream = deltas(endpoint, "Write a novel.", 3000, ignore_eos=True)
        await anext(stream)
        await stream.aclose()
    assert await asyncio.wait_for(answer(endpoint, PROMPT, 4), 30)


def test_an_endpoint_without_a_key_says_so() -> None:
    assert Endpoint("http://127.0.0.1:1", "m", 0).api_key is None
