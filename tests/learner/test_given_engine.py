"""The whole loop before a llama-server without router mode: a person starts it again, and the version is there."""

from __future__ import annotations

import asyncio
import shlex
from pathlib import Path
from typing import Any

import httpx
import pytest

from bench.learning.questions import PROMPTS
from tests.support.inprocess import calling
from tests.support.llama_server import LlamaServer
from tests.support.patience import within
from tests.support.tiny_gguf import random_llama


async def ask(http: httpx.AsyncClient, question: str, model: str = "default") -> tuple[str, str]:
    body = {"model": model, "messages": [{"role": "user", "content": question}], "max_tokens": 24}
    answer = await http.post("/v1/chat/completions", json=body | {"temperature": 0})
    assert answer.status_code == 200, answer.text
    return answer.json()["choices"][0]["message"]["content"], answer.headers["x-burnish-completion-id"]


async def trained(http: httpx.AsyncClient) -> dict[str, Any]:
    started = await http.post("/burnish/train", json={})
    assert started.status_code == 202, started.text
    run: dict[str, Any] = {}
    async with asyncio.timeout(within(500)):
        while not run.get("ended_at"):
            await asyncio.sleep(0.1)
            run = (await http.get(f"/burnish/runs/{started.json()['run_id']}")).json()
    return run


@pytest.mark.slow
@pytest.mark.timeout(700)
async def test_ratings_become_a_version_that_a_restart_makes_servable(tmp_path: Path) -> None:
    model = random_llama(tmp_path / "tiny.gguf")
    plain = f"-m {model} --alias tiny -c 4096 -np 2 --cache-ram 0".split()
    train = {"schedule": "manual", "epochs": 1, "threads": 1}
    with LlamaServer(plain, tmp_path / "server.log") as server:
        async with calling(tmp_path, upstream=server.url, engine="auto", train=train) as http:
            before = [(await ask(http, question))[0] for question in PROMPTS[:3]]
            for number, question in enumerate(PROMPTS[:8]):
                _, completion = await ask(http, question)
                rating = {"completion_id": completion, "rating": 1 if number % 2 else -1}
                assert (await http.post("/v1/feedback", json=rating)).status_code == 201
            run = await trained(http)
            assert run["status"] == "candidate" and "not judged" in run["reason"], run
            words = (await http.post("/burnish/adapters/1/promote", json={})).json()["error"]["message"]
            assert "takes an adapter only when it starts" in words

            server.arguments += shlex.split(words[words.index("--lora-scaled") : words.index(", then ask")])
            server.restart()
            promoted = await http.post("/burnish/adapters/1/promote", json={})
            assert promoted.status_code == 200, promoted.text
            after = [(await ask(http, question))[0] for question in PROMPTS[:3]]
            assert [(await ask(http, question, "tiny@base"))[0] for question in PROMPTS[:3]] == before
            assert [(await ask(http, question, "tiny@v1"))[0] for question in PROMPTS[:3]] == after
            await http.post("/burnish/adapters/rollback", json={"to": 0})
            assert [(await ask(http, question))[0] for question in PROMPTS[:3]] == before
