from __future__ import annotations

import asyncio
import os
import shlex
import sys
import time
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from burnish.cli.engines import engines_here
from tests.support.burnish import running
from tests.support.inprocess import calling, listening
from tests.support.llama_server import free_port
from tests.support.ollama_store import LIBRARY, pulled
from tests.support.patience import within
from tests.support.program import ask, call, on_terminal, run
from tests.support.tiny_gguf import random_llama
from tests.support.vllm_double import Engine

# SGLang's own, the least likely of the usual ones to be in use where tests run.
PORT = 30000
# A run starts in a moment without requests.
START_LIMIT_S = 60


def port_of(url: str) -> int:
    return int(url.rpartition(":")[2])


async def test_engines_are_found_by_what_they_answer(tmp_path: Path) -> None:
    async def app(scope: object, receive: object, send: object) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})  # type: ignore[operator]
        await send({"type": "http.response.body", "body": b"a web page"})  # type: ignore[operator]

    async with listening(Engine().app()) as engine, listening(app) as page:
        found = await engines_here([port_of(page), free_port(), port_of(engine)])
    assert [(url, each.kind, each.model) for url, each in found] == [(engine, "vllm", "smollm2")]


@pytest.fixture
async def engine() -> AsyncIterator[str]:
    async with listening(Engine().app(), PORT) as url:
        yield url


@pytest.mark.parametrize(("typed", "started"), [("\n", f"http://127.0.0.1:{PORT}"), ("n\n", "the embedded")])
async def test_up_asks_at_a_terminal(tmp_path: Path, engine: str, typed: str, started: str) -> None:
    def up() -> str:
        with on_terminal(*flags(tmp_path), env={"COLUMNS": "300", "NO_COLOR": "1"}) as (screen, _):
            screen.until(f"vLLM with smollm2 answers at {engine}. Use it?")
            screen.type(typed)
            return screen.until(" …")

    assert f"starting with {started}" in await asyncio.to_thread(up)


async def said_without_a_terminal(tmp_path: Path) -> str:
    """What burnish prints until it starts, if nobody can answer."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "burnish", *flags(tmp_path)),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=os.environ | {"COLUMNS": "300"},
    )
    assert process.stdout
    try:
        async with asyncio.timeout(within(60)):
            return (await process.stdout.readuntil(b"starting with the embedded engine")).decode()
    finally:
        process.terminate()
        await process.communicate()


async def test_up_says_what_it_found_where_nobody_can_answer(tmp_path: Path, engine: str) -> None:
    assert f"burnish up --upstream {engine}" in await said_without_a_terminal(tmp_path)


def test_a_new_data_directory_is_offered_a_larger_model_first(tmp_path: Path) -> None:
    offer = "the embedded engine with qwen2.5-coder-0.5b, which knows more: 0.5 GB to download, about"
    env = {"COLUMNS": "300", "NO_COLOR": "1", "HF_HOME": str(tmp_path), "HF_ENDPOINT": "http://127.0.0.1:9"}
    with on_terminal(*flags(tmp_path), env=env) as (screen, process):
        assert offer in screen.until("Use it? [Y/n]: ")
        screen.type("\n")
        assert "the next start needs it again: burnish up --model qwen2.5-coder-0.5b" in screen.until("keeps")
        assert process.wait(within(60)) == 1, "there is no hub"
    with on_terminal(*flags(tmp_path), env=env) as (screen, _):
        screen.until("Use it? [Y/n]: ")
        screen.type("n\n")
        assert "starting with the embedded engine (small model)" in screen.until("burnish is up")
    with on_terminal(*flags(tmp_path), env=env) as (screen, _):
        assert offer not in screen.until("starting with"), "its versions are the small model's"


async def test_a_larger_model_is_only_named_where_nobody_can_agree_to_a_download(tmp_path: Path) -> None:
    assert "to use it: burnish up --model qwen2.5-coder-0.5b" in await said_without_a_terminal(tmp_path)


async def test_up_says_what_to_do_with_lm_studio(tmp_path: Path) -> None:
    async with listening(engine_app(LM_STUDIO), PORT) as url:
        said = await said_without_a_terminal(tmp_path)
    assert f"LM Studio with qwen3 answers at {url}. LM Studio takes no adapters." in said
    assert "burnish adapters export N NAME.gguf --as merged-gguf" in said


LM_STUDIO_MODEL = {"id": "qwen3", "type": "llm", "compatibility_type": "gguf", "state": "loaded"}
LM_STUDIO = {
    "/v1/models": {"object": "list", "data": [{"id": "qwen3", "owned_by": "organization_owner"}]},
    "/api/v0/models": {"object": "list", "data": [LM_STUDIO_MODEL]},
    "/{path:path}": {"error": "Unexpected endpoint or method."},  # with status 200
}


def engine_app(answers: dict[str, Any]) -> Starlette:
    def route(path: str, content: Any) -> Route:
        async def answer(request: Request) -> JSONResponse:
            return JSONResponse(content)

        return Route(path, answer, methods=["GET", "POST"])

    return Starlette(routes=[route(path, content) for path, content in answers.items()])


async def test_for_ollama_both_ways_are_one_question(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path / "models"))
    pulled(tmp_path / "models", random_llama(tmp_path / "tiny.gguf"), f"{LIBRARY}/tiny/1b")
    ollama = {
        "/api/version": {"version": "0.34.4"},
        "/api/tags": {"models": [{"name": "tiny:1b"}]},
        "/api/show": {"modelfile": "FROM /nowhere"},
    }

    def up() -> tuple[str, str]:
        with on_terminal(*flags(tmp_path), env={"COLUMNS": "300", "NO_COLOR": "1"}) as (screen, _):
            asked = screen.until("Engine [1]: ")
            screen.type("4\n")
            screen.until("choose a number from 1 to 3")
            screen.type("2\n")
            return asked, screen.until("burnish is up")

    async with listening(engine_app(ollama), PORT) as url:
        asked, started = await asyncio.to_thread(up)
        unattended = await said_without_a_terminal(tmp_path)
    assert f"1  Ollama with tiny:1b answers at {url}" in asked
    assert "2  burnish's own engine, with Ollama's file of tiny:1b" in asked
    assert "3  burnish's own engine, with a small model" in asked
    assert "starting with the embedded engine (ollama:tiny:1b)" in started
    assert "to use it: burnish up --upstream " + url in unattended
    assert "to use it: burnish up --model ollama:tiny:1b" in unattended


async def test_status_and_doctor_say_how_models_of_lm_studio_learn(tmp_path: Path) -> None:
    async with listening(engine_app(LM_STUDIO), PORT) as url:
        async with calling(tmp_path, upstream=url, engine="auto") as http:
            reason = (await http.get("/burnish/status")).json()["engine"]["obstacle"]
        env = {"BURNISH_UPSTREAM": url, "COLUMNS": "600"}
        checked = await asyncio.to_thread(partial(call, "doctor", env=env))
    for said in (reason, checked.stdout):
        assert "LM Studio takes no adapters. Let burnish learn with its own engine" in said


@pytest.mark.parametrize(
    ("fault", "remedy"),
    [
        ("libgomp.so.1: cannot open shared object file: No such file or directory", "apt install libgomp1"),
        ("undefined symbol: llama_new", "install it again: "),
    ],
)
def test_an_engine_that_does_not_load_is_explained(tmp_path: Path, fault: str, remedy: str) -> None:
    (tmp_path / "xllamacpp.py").write_text(f"raise ImportError({fault!r})")
    done = run(*flags(tmp_path), env={"PYTHONPATH": str(tmp_path)})
    assert done.returncode == 1
    assert f"does not load ({fault})" in done.stderr
    assert remedy in done.stderr
    # Without training, whose check imports torch.
    checked = run("doctor", env={"PYTHONPATH": str(tmp_path), "BURNISH_TRAIN__ENABLED": "false"})
    assert remedy in checked.stdout


def flags(tmp_path: Path) -> list[str]:
    settings = tmp_path / "config.toml"
    settings.touch()
    return ["up", "--port", "0", "--data-dir", str(tmp_path / "data"), "--config", str(settings)]


UPSTREAM = "--upstream http://127.0.0.1:9"


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ("--train-after 8 --no-train", "--train-after and --no-train exclude each other"),
        ("--workers 2", "--workers: there is no setting 'workers' any more: burnish answers in one process"),
        ("--train-after 1", "train.min_ratings: must be a whole number, at least 2 (given: 1)\n"),
        ("--log-level loud", "log_level: Input should be 'debug', 'info', 'warning' or 'error'"),
        ("--context 0", "must be a whole number, at least 512 (given: 0)"),
        ("--parallel 0", "must be a whole number, at least 1 and at most 64 (given: 0)"),
        (f"--context 8192 {UPSTREAM}", "context and parallel are for the embedded engine"),
        (f"--model ollama:tiny {UPSTREAM}", "is for the embedded engine: leave upstream out"),
        ("--upstream 'not a url'", "must be an http"),
        (f"--host 0.0.0.0 {UPSTREAM}", "set api_key"),
        ("--config /nowhere.toml", "does not exist"),
        (f"--engine vllm {UPSTREAM}", "leave one of them out"),
        ("--engine llama", "engine: "),
        ("--engine-args '--dtype half'", "need an engine that burnish starts"),
        ("--engine llama-server --engine-python /bin/python", "leave engine_python out"),
        ('--engine vllm --engine-args "\'--dtype"', "close the quote"),
        ("--engine vllm --context 8192", "give its own options in engine_args"),
    ],
)
def test_flags_that_cannot_be_are_one_sentence(tmp_path: Path, flags: str, says: str) -> None:
    done = call("up", "--port", "0", "--data-dir", str(tmp_path / "data"), *shlex.split(flags))
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert "Undefined" not in done.stderr, "a default that depends on the wrong one is no fault"


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ("--engine mlx", "MLX needs a model"),
        ("--engine vllm --model missing/", "the model missing/ doesn't exist"),
        ("--engine llama-server --engine-args '--lora x'", "has --lora, which burnish sets itself"),
    ],
)
def test_an_engine_that_cannot_be_started_is_one_sentence(tmp_path: Path, flags: str, says: str) -> None:
    done = call("up", "--port", "0", "--data-dir", str(tmp_path / "data"), *shlex.split(flags))
    assert done.returncode == 1
    assert says in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


def test_train_after_is_refused_where_nothing_starts_by_itself(tmp_path: Path) -> None:
    done = call("up", "--train-after", "8", env={"BURNISH_TRAIN__SCHEDULE": "manual"})
    assert done.returncode == 2
    assert '--train-after has no effect with schedule = "manual"' in done.stderr


def test_train_after_starts_a_run_at_exactly_that_rating(tmp_path: Path) -> None:
    limit_s = within(START_LIMIT_S)
    given = ("--model", str(random_llama(tmp_path / "tiny.gguf")), "--train-after", "4")
    with running(tmp_path / "data", *given, env={"BURNISH_TRAIN__EPOCHS": "1"}) as up:
        said = " ".join(up.log_file.read_text().split())
        assert "or 4 ratings (2 good and 1 bad or more), it trains" in said
        for number, rating in enumerate(("good", "bad", "good", "good"), 1):
            body = {"completion_id": ask(up.url, f"What is tea? ({number})"), "rating": rating}
            assert httpx.post(up.url + "/v1/feedback", json=body, timeout=limit_s).status_code == 201
            if number < 4:
                assert httpx.get(up.url + "/burnish/runs", timeout=limit_s).json() == {"runs": []}
        deadline = time.monotonic() + limit_s
        while not (runs := httpx.get(up.url + "/burnish/runs", timeout=limit_s).json()["runs"]):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert runs[0]["reason"].startswith("4 new ratings (3 good and 1 bad ready)")
