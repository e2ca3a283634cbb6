from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
import time
from pathlib import Path

import aiohttp
import psutil
import pytest

from burnish.adapters.errors import EngineError
from burnish.adapters.hosts.context import MAX_RESIDENT
from burnish.adapters.hosts.embedded import EmbeddedHost
from burnish.adapters.proof import generates
from tests.support.engine import answer, deltas, headers
from tests.support.lora import Make
from tests.support.patience import within
from tests.support.tiny_gguf import random_llama


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


async def test_only_who_has_the_key_is_answered_and_no_page_may_ask(host: EmbeddedHost) -> None:
    endpoint = await host.load(None)
    assert endpoint.url.startswith("http://127.0.0.1:")
    assert endpoint.api_key
    process = psutil.Process(host.processes()[0])
    assert endpoint.api_key not in " ".join(process.cmdline()) + str(process.environ())
    evil = {"origin": "http://evil.example"}
    async with aiohttp.ClientSession() as session:
        guarded = [("POST", "/v1/chat/completions"), ("GET", "/v1/models"), ("POST", "/lora-adapters")]
        for method, path in [*guarded, ("GET", "/props"), ("GET", "/slots")]:
            async with session.request(method, endpoint.url + path, json={}, headers=evil) as response:
                assert response.status == 401, path
                assert not response.headers.get("access-control-allow-origin")
        for path in ("/", "/index.html"):
            async with session.get(endpoint.url + path) as response:
                assert response.status in {401, 404}, "there is no web page"
        for method, path in [("GET", "/slots"), ("GET", "/metrics"), ("POST", "/props")]:
            known = headers(endpoint)
            async with session.request(method, endpoint.url + path, json={}, headers=known) as response:
                assert response.status == 501, path


def files(state: Path) -> list[Path]:
    return sorted(state.iterdir(), key=lambda path: path.stat().st_mtime_ns)


def modes(paths: list[Path]) -> set[int]:
    return {path.stat().st_mode & 0o777 for path in paths}


async def test_a_child_gets_no_key(host: EmbeddedHost, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = ("BURNISH_API_KEY", "OPENAI_API_KEY", "AWS_SECRET_ACCESS_KEY", "LDAP_PASSWORD", "PYTHON_TOKEN")
    for name in keys:
        monkeypatch.setenv(name, "geheim")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    await host.load(None)
    for process in host.processes().values():
        environment = psutil.Process(process).environ()
        assert "geheim" not in environment.values()
        assert environment["OMP_NUM_THREADS"] == "1"


async def test_state_is_private(host: EmbeddedHost, make: Make, engine_state: Path) -> None:
    await host.load(make(1))
    assert (modes([engine_state]), modes(files(engine_state))) == ({0o700}, {0o600})
    assert any(path.suffix == ".gguf" for path in files(engine_state))


async def test_a_damaged_conversion_is_made_again(host: EmbeddedHost, make: Make, engine_state: Path) -> None:
    version = make(9)
    await host.load(version)
    await host.unload(version.number)
    latest = [path for path in files(engine_state) if path.suffix == ".gguf"][-1]
    os.truncate(latest, 5000)
    with pytest.raises(EngineError):
        await host.load(version)
    assert host.processes() == {}
    await generates(host, await host.load(version))


async def test_a_model_that_is_missing_or_damaged_is_named(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"gone\.gguf: No such file"):
        EmbeddedHost(tmp_path / "gone.gguf", base_model="x", state_dir=tmp_path / "state")
    (tmp_path / "bad.gguf").write_bytes(b"GGUF" + bytes(100))
    with pytest.raises(EngineError, match=r"cannot read the model .*bad\.gguf as GGUF"):
        EmbeddedHost(tmp_path / "bad.gguf", base_model="x", state_dir=tmp_path / "state")
    # Its header says more layers than it holds.
    short = random_llama(tmp_path / "short.gguf", keys={"block_count": 9})
    host = EmbeddedHost(short, base_model="x", state_dir=tmp_path / "state")
    with pytest.raises(EngineError, match=r"short\.gguf.*engine-v0000\.log"):
        await host.load(None)
    await host.close()


async def test_a_listed_model_samples_as_its_authors_do_unless_a_request_says_otherwise(
    tmp_path: Path,
) -> None:
    model = random_llama(tmp_path / "tiny.gguf")
    host = EmbeddedHost(model, base_model="phi-3-mini", state_dir=tmp_path / "state")  # at temperature 0
    endpoint = await host.load(None)
    async with aiohttp.ClientSession(endpoint.url, headers=headers(endpoint)) as session:

        async def reply(seed: int, **params: float) -> str:
            body = {"model": endpoint.model, "prompt": "Tea", "max_tokens": 8, "seed": seed, **params}
            async with session.post("/v1/completions", json=body) as answer:
                return str((await answer.json())["choices"][0]["text"])

        assert len({await reply(seed) for seed in range(3)}) == 1
        assert len({await reply(seed, temperature=1) for seed in range(3)}) == 3
    await host.close()
    assert host.limits.longest_answer == 500
    unlisted = EmbeddedHost(model, base_model="tiny", state_dir=tmp_path / "state")
    assert unlisted.limits.longest_answer == 512, "it is small"


async def test_room_is_limited(host: EmbeddedHost, make: Make) -> None:
    for seed in range(1, MAX_RESIDENT + 1):
        await host.load(make(seed))
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


PARENT = """
import asyncio, sys
from pathlib import Path
from burnish.adapters.hosts.embedded import EmbeddedHost
from tests.support.engine import deltas

async def main():
    host = EmbeddedHost(Path(sys.argv[2]), base_model="tiny", state_dir=Path(sys.argv[1]))
    endpoint = await host.load(None)
    async for _ in deltas(endpoint, "Write a novel.", 3000, ignore_eos=True):
        if host.processes():
            print(host.processes()[0], flush=True)

asyncio.run(main())
"""


async def test_killing_the_parent_leaves_no_orphan_even_in_mid_token(tmp_path: Path, tiny: Path) -> None:
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PARENT, str(tmp_path / "state"), str(tiny), stdout=asyncio.subprocess.PIPE
    )
    assert parent.stdout
    lines = [await parent.stdout.readline() for _ in range(20)]
    child = psutil.Process(int(lines[-1]))
    assert "embedded_child" in " ".join(child.cmdline())
    parent.kill()
    await parent.communicate()
    began = time.monotonic()
    while child.is_running() and child.status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() - began < within(3), "the engine outlived its parent"
        await asyncio.sleep(0.01)


async def test_a_child_survives_ctrl_c_and_clients_that_go(host: EmbeddedHost) -> None:
    endpoint = await host.load(None)
    os.kill(host.processes()[0], signal.SIGINT)
    for _ in range(8):  # twice as many as it has slots
        stream = deltas(endpoint, "Write a novel.", 3000, ignore_eos=True)
        await anext(stream)
        await stream.aclose()
    texts = await asyncio.gather(*(answer(endpoint, f"Count to {n}.", 16) for n in range(5)))
    assert all(texts), "a fifth request waits for a slot"
