from __future__ import annotations

import asyncio
import json
import os
import socket
import venv
from collections.abc import Mapping
from pathlib import Path

import pytest

from burnish.adapters.registry import Registry
from burnish.training.job import PromptsCompared
from tests.support.burnish import Burnish
from tests.support.inprocess import behind, calling, serving
from tests.support.lora import random_lora, register, write_peft
from tests.support.program import NOBODY, call
from tests.support.upstream import Received, completion, reply, upstream

MODELS = b'{"object": "list", "data": [{"id": "a"}, {"id": "b"}, {"id": "c"}, {"id": "d"}]}'


def examine(
    url: str | None = None, env: Mapping[str, str] | None = None, code: int = 0, *, deep: bool = False
) -> dict[str, tuple[str, str]]:
    """Run the doctor; return what → (level, text). Training is off: importing torch takes seconds."""
    done = call(
        "doctor",
        "--json",
        *(["--deep"] if deep else []),
        url=url,
        env={"BURNISH_TRAIN__ENABLED": "false"} | dict(env or {}),
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return {each["what"]: (each["level"], each["text"]) for each in json.loads(done.stdout)}


def test_a_healthy_set_up_beside_a_running_burnish(burnish: Burnish) -> None:
    found = examine(burnish.url, {"BURNISH_TRAIN__ENABLED": "true"})
    assert {level for level, _ in found.values()} <= {"ok", "warn"}
    assert found["proxy"] == ("ok", f"ok at {burnish.url}")
    for what in ("python", "configuration", "data", "clock", "model", "engine", "training"):
        assert found[what][0] == "ok", found[what]
    assert "xllamacpp 2" in found["engine"][1]


def test_without_a_burnish_it_says_whether_one_could_start() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    found = examine(env={"BURNISH_PORT": port, "BURNISH_SIGNALS__ENABLED": "true"})
    assert f"127.0.0.1:{port} is free" in found["proxy"][1]
    assert found["signals"] == ("ok", "on: results of coding agents' tools rate their turns")


def test_a_taken_port_is_told_with_its_holder() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        found = examine(url=NOBODY, env={"BURNISH_PORT": str(taken.getsockname()[1])}, code=1)
    level, text = found["port"]
    assert (level, "pick another with --port" in text) == ("fail", True)
    assert f"process {os.getpid()}" in text or "used by" not in text  # lsof isn't installed


@pytest.mark.parametrize("content", [b"[1]", b'{"status": "ok"}', b"<html>"])
async def test_another_server_is_no_burnish(content: bytes) -> None:
    async with upstream(reply(content)) as other:
        found = await asyncio.to_thread(examine, other.url, code=1)
    assert "another program answers" in found["proxy"][1]


async def test_a_burnish_that_wants_its_key(tmp_path: Path) -> None:
    async with (
        upstream(reply(MODELS)) as other,
        serving(tmp_path, upstream=other.url, api_key="k") as (url, _),
    ):
        assert "BURNISH_API_KEY" in (await asyncio.to_thread(examine, url))["proxy"][1]
        found = await asyncio.to_thread(examine, url, {"BURNISH_API_KEY": "k"})
    assert found["proxy"][0] == "ok"


@pytest.mark.parametrize("forwards", [False, True])
async def test_a_reverse_proxy_that_hides_who_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forwards: bool
) -> None:
    monkeypatch.setattr("burnish.cli.doctor_network.is_loopback", lambda host: False)
    async with calling(tmp_path, upstream=NOBODY) as burnish:

        async def proxy(request: Received, writer: asyncio.StreamWriter) -> None:
            headers = {"x-forwarded-for": "192.0.2.7"} if forwards else {}
            answer = await burnish.get(request.target, headers=headers)
            await reply(answer.content)(request, writer)

        async with upstream(proxy) as public:
            found = await asyncio.to_thread(examine, public.url, {"BURNISH_UPSTREAM": public.url})
    assert ("reverse proxy" in found) is not forwards
    if not forwards:
        level, text = found["reverse proxy"]
        assert level == "warn"
        assert "X-Forwarded-For" in text and public.url in text


async def test_it_checks_what_the_running_burnish_uses(tmp_path: Path) -> None:
    async with upstream(reply(MODELS)) as other, serving(tmp_path, upstream=other.url) as (url, _):
        found = await asyncio.to_thread(examine, url)
        assert found["configuration"][1] == f"from here on, that of burnish at {url}"
        assert found["data"] == ("ok", f"{tmp_path / 'data'}, in use")
        assert (found["upstream"][0], other.url in found["upstream"][1]) == ("ok", True)
        assert (found["engine"][0], "engine = none" in found["engine"][1]) == ("ok", True)
    async with serving(tmp_path, upstream=NOBODY, engine="auto") as (url, _):
        found = await asyncio.to_thread(examine, url, code=1)
        assert (found["upstream"][0], "check that it is running" in found["upstream"][1]) == ("fail", True)
        assert (found["engine"][0], "cannot be reached" in found["engine"][1]) == ("warn", True)
    async with upstream(reply(b"{}", status="401 Unauthorized")) as other:
        keyed = serving(tmp_path, upstream=other.url, upstream_api_key="geheim", api_key="k", admin_key="a")
        async with keyed as (url, _):
            found = await asyncio.to_thread(examine, url, {"BURNISH_API_KEY": "k"})
            level, text = found["configuration"]
            assert (level, "BURNISH_ADMIN_KEY" in text) == ("warn", True)
            found = await asyncio.to_thread(examine, url, {"BURNISH_ADMIN_KEY": "a"})
            assert found["upstream"] == ("ok", f"{other.url} needs a key, and burnish has one")
            sent = [request.header("authorization") or "" for request in other.requests]
            assert not any("*" in header for header in sent)


async def test_deep_compares_every_text_and_every_version_with_its_digest(tmp_path: Path) -> None:
    data = tmp_path / "data"
    registry = Registry(data / "adapters")
    version = register(registry, write_peft(tmp_path / "made", random_lora(1)), "sha256:0")
    async with behind(tmp_path, reply(completion("Tea is a drink."))) as (http, _):
        body = {"model": "m", "messages": [{"role": "user", "content": "?"}]}
        await http.post("/v1/chat/completions", json=body)
        found = await asyncio.to_thread(examine, str(http.base_url), deep=True)
        assert (found["log"], found["versions"]) == (
            ("ok", "sound, with 2 texts as they were stored"),
            ("ok", "1 sound, 0 damaged"),
        )
    weights = version.path / "adapter_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"?")
    database = data / "burnish.db"
    database.write_bytes(database.read_bytes().replace(b"Tea is a drink.", b"Tea is a drunk."))
    found = await asyncio.to_thread(examine, NOBODY, {"BURNISH_DATA_DIR": str(data)}, code=1, deep=True)
    assert "1 of 2 texts" in found["log"][1]
    assert found["versions"] == ("fail", "0 sound, 1 damaged")
    assert "has changed" in found["v1"][1]
    async with calling(tmp_path, upstream=NOBODY) as http:
        health = (await http.get("/healthz")).json()
        assert "1 of 2 texts in the log are damaged" in health["trouble"][0]


async def test_reasons_that_nobody_knows_are_named(tmp_path: Path) -> None:
    asked = {"model": "m", "messages": [{"role": "user", "content": "Tea?"}]}
    async with behind(tmp_path, reply(completion())) as (http, server):
        for reason in (b"moon_phase", b"stop", b"moon_phase"):
            server.script = reply(completion().replace(b'"stop"', b'"%b"' % reason))
            made = (await http.post("/v1/chat/completions", json=asked)).headers["x-burnish-completion-id"]
            rated = await http.post("/v1/feedback", json={"completion_id": made, "rating": "good"})
            assert rated.json()["usable"] is (reason == b"stop")
        found = await asyncio.to_thread(examine, str(http.base_url))
    level, text = found["answers"]
    assert level == "warn" and "doesn't know: 2 × 'moon_phase'. They" in text


@pytest.mark.parametrize(
    ("content", "status", "level", "says"),
    [
        (MODELS, "200 OK", "ok", "a, b, c, and 1 more"),
        (b"{}", "401 Unauthorized", "warn", "upstream_api_key"),
        (b"<html>", "200 OK", "warn", "check the URL"),
        (b"{}", "404 Not Found", "warn", "404"),
    ],
)
async def test_what_an_upstream_answers(content: bytes, status: str, level: str, says: str) -> None:
    async with upstream(reply(content, status=status)) as server:
        found = await asyncio.to_thread(examine, NOBODY, {"BURNISH_UPSTREAM": server.url + "/v1"})
        assert server.requests[0].target == "/v1/models"
    for what, expected, words in (("upstream", level, says), ("engine", "warn", "can't swap versions")):
        assert (found[what][0], words in found[what][1]) == (expected, True), found[what]


@pytest.mark.parametrize(
    ("key", "status", "level", "says"),
    [
        ("sk-1", "200 OK", "ok", "a, b, c, and 1 more"),
        ("sk-1", "401 Unauthorized", "fail", "refuses the key: mend api_key in [upstreams.cloud]"),
        ("sk-1", "403 Forbidden", "fail", "refuses the key: mend api_key in [upstreams.cloud]"),
        ("", "401 Unauthorized", "warn", "set api_key in [upstreams.cloud], or have callers send theirs"),
        ("sk-1", "404 Not Found", "warn", "404"),
        ("sk-1", None, "fail", "check that it is running"),
    ],
)
async def test_what_a_further_upstream_answers(key: str, status: str | None, level: str, says: str) -> None:
    async with upstream(reply(MODELS, status=status or "200 OK")) as server:
        table = {
            "BURNISH_UPSTREAMS__CLOUD__URL": server.url if status else NOBODY,
            "BURNISH_UPSTREAMS__CLOUD__MODELS": '["gpt-5"]',
            "BURNISH_UPSTREAMS__CLOUD__API_KEY": key,
        }
        found = await asyncio.to_thread(examine, NOBODY, table, int(level == "fail"))
        told, text = found["upstreams.cloud"]
        sent = [each.header("authorization") for each in server.requests]
    assert (told, says in text) == (level, True), text
    assert sent == ([f"Bearer {key}" if key else None] if status else [])


def test_whether_litellm_is_there(tmp_path: Path) -> None:
    venv.create(tmp_path / "bare", symlinks=True)
    table = {"BURNISH_UPSTREAM": "litellm:bedrock/m", "BURNISH_UPSTREAMS__AWS__URL": "litellm:bedrock/m"}
    table |= {"BURNISH_UPSTREAMS__AWS__MODELS": '["claude"]'}
    python = str(tmp_path / "bare" / "bin" / "python")
    found = examine(env={"BURNISH_LITELLM__PYTHON": python, **table}, code=1)
    missing = f"litellm:bedrock/m needs litellm, which isn't installed; run: {python} -m pip install "
    for what in ("upstream", "upstreams.aws"):
        level, text = found[what]
        assert (level, text[: len(missing)]) == ("fail", missing)
    assert "a provider's model" in found["engine"][1]


async def test_of_a_running_burnish_it_tells_what_that_found_at_its_further_upstreams(tmp_path: Path) -> None:
    async with upstream(reply(b"{}", status="401 Unauthorized")) as cloud:
        table = {"url": cloud.url, "models": ["gpt-5"]}
        tables = {"right": table, "wrong": {"url": cloud.url, "models": ["o4"], "api_key": "sk-geheim"}}
        async with serving(tmp_path, upstream=NOBODY, upstreams=tables) as (url, _):
            found = await asyncio.to_thread(examine, url, code=1)
            shown = await asyncio.to_thread(call, "status", url=url)
    assert found["upstreams.right"] == ("ok", f"{cloud.url} answers for gpt-5")
    refused = f"{cloud.url} refuses burnish's api_key in [upstreams.wrong] (GET /v1/models answered 401)"
    assert found["upstreams.wrong"] == ("fail", refused)
    words = " ".join(shown.stdout.split())
    assert f"{cloud.url} for gpt-5 (right, doesn't teach) {cloud.url} for o4 (wrong" in words
    assert refused in words
    assert "geheim" not in shown.stdout


@pytest.mark.parametrize(
    ("env", "what", "says"),
    [
        ({"BURNISH_UPSTREAM": NOBODY}, "upstream", "check that it is running"),
        ({"BURNISH_PORT": "many"}, "configuration", "many"),
        ({"BURNISH_DATA_DIR": __file__ + "/data"}, "data", "cannot be written"),
        ({"BURNISH_MODEL": "/none.gguf"}, "model", "/none.gguf can't be read"),
    ],
)
def test_what_is_wrong_is_a_finding(env: dict[str, str], what: str, says: str) -> None:
    level, text = examine(NOBODY, env, code=1)[what]
    assert (level, says in text) == ("fail", True), text


def test_a_missing_and_a_damaged_model(tmp_path: Path) -> None:
    model = tmp_path / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"
    fresh = {"BURNISH_CACHE_DIR": str(tmp_path)}
    missing = examine(url=NOBODY, env=fresh)
    assert (missing["model"][0], missing["training"][1]) == ("warn", "turned off")
    model.parent.mkdir(exist_ok=True)
    model.write_bytes(b"half a download")
    assert "damaged" in examine(url=NOBODY, env=fresh)["model"][1]


def test_a_model_of_the_hub_that_is_not_here_yet(tmp_path: Path) -> None:
    found = examine(env={"BURNISH_MODEL": "qwen3-0.6b", "HF_HOME": str(tmp_path)})
    assert found["model"] == ("warn", "qwen3-0.6b isn't downloaded yet: `burnish up` does it")


def test_a_clock_that_is_behind_its_own_files(tmp_path: Path) -> None:
    log = tmp_path / "burnish.db"
    log.touch()
    os.utime(log, (4e9, 4e9))
    assert examine(url=NOBODY, env={"BURNISH_DATA_DIR": str(tmp_path)})["clock"][0] == "warn"


def test_prompts_that_the_engine_read_otherwise_are_told(tmp_path: Path) -> None:
    (tmp_path / "jobs" / "run_1").mkdir(parents=True)
    outcome = PromptsCompared(same=4, different=2, unchecked=1, offsets={"messages": 1})
    (tmp_path / "jobs" / "run_1" / "prompts.json").write_text(outcome.model_dump_json())
    level, text = examine(url=NOBODY, env={"BURNISH_DATA_DIR": str(tmp_path)})["prompts"]
    assert level == "warn"
    assert "4 prompts are those that the engine read; 2 aren't, and weren't taught; 1 are unchecked" in text
    assert "it counts +1 tokens in messages" in text
