"""The base model in the embedded engine, asked by name while a version is live."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest

from burnish.system.apart import LARGE_BYTES
from tests.proxy.log.exchanges import until
from tests.support.inprocess import calling, logged
from tests.support.lora import write_peft
from tests.support.ollama_store import LIBRARY, pulled
from tests.support.tiny_gguf import TINY, random_llama, tiny_lora

QUESTIONS = ("What is rust?", "What is rust? And salt?", "Who reads maps?")


async def ask(http: httpx.AsyncClient, question: str, model: str) -> str:
    body = {"model": model, "messages": [{"role": "user", "content": question}], "max_tokens": 12}
    answer = await http.post("/v1/chat/completions", json=body | {"temperature": 0})
    assert answer.status_code == 200, answer.text
    return str(answer.json()["choices"][0]["message"]["content"])


async def promote(http: httpx.AsyncClient, tmp_path: Path) -> None:
    adapter = write_peft(tmp_path / "trained", tiny_lora(TINY, 1))
    assert (await http.post("/burnish/adapters", json={"path": str(adapter)})).status_code == 201
    assert (await http.post("/burnish/adapters/1/promote", json={})).status_code == 200


async def test_the_base_answers_beside_the_live_version_without_a_second_process(tmp_path: Path) -> None:
    model = random_llama(tmp_path / "tiny.gguf")
    async with calling(tmp_path, model=str(model), engine="auto", train={"schedule": "manual"}) as http:
        bare = [await ask(http, question, "tiny") for question in QUESTIONS]
        await promote(http, tmp_path)
        adapted = [await ask(http, question, "default") for question in QUESTIONS]
        assert adapted != bare
        await until(lambda: only_resident(http, 1))  # the base's own process ends
        listed = [each["id"] for each in (await http.get("/v1/models")).json()["data"]]
        assert listed == ["default", "tiny", "tiny@base", "tiny@v1"]
        for model_name, expected in (("tiny@base", bare), ("tiny@v1", adapted)) * 2:
            asked = [ask(http, question, model_name) for question in QUESTIONS]
            assert [await each for each in asked] == expected, model_name
        mixed = [ask(http, question, name) for question in QUESTIONS for name in ("tiny@base", "default")]
        pairs = zip(bare, adapted, strict=True)
        assert await asyncio.gather(*mixed) == [text for pair in pairs for text in pair]
        assert await only_resident(http, 1)
        versions = {(each["model_asked"], each["adapter_version"]) for each in await logged(http)}
        assert {("tiny@base", 0), ("tiny@v1", 1), ("default", 1)} <= versions


async def test_a_large_request_that_must_be_translated_reaches_the_engine(tmp_path: Path) -> None:
    model = random_llama(tmp_path / "tiny.gguf")
    async with calling(tmp_path, model=str(model), engine="auto", train={"schedule": "manual"}) as http:
        for metadata in ({}, {"note": "x" * LARGE_BYTES}):
            asked = {"model": "default", "input": "Hi.", "max_output_tokens": 16, "metadata": metadata}
            answer = await http.post("/v1/responses", json=asked)
            assert answer.status_code == 200, answer.text
            assert answer.json()["output"]


async def test_a_model_of_ollama_is_swapped_at_once_and_keeps_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path / "models"))
    pulled(tmp_path / "models", random_llama(tmp_path / "tiny.gguf"), f"{LIBRARY}/tiny/1b", system="Sing.")
    async with calling(tmp_path, model="ollama:tiny:1b", engine="auto", train={"schedule": "manual"}) as http:
        assert "uses the model without its system prompt" in caplog.text
        bare = await ask(http, QUESTIONS[0], "tiny:1b")
        await promote(http, tmp_path)
        message = {"role": "user", "content": QUESTIONS[0]}
        asked = {"model": "tiny:1b", "messages": [message], "options": {"temperature": 0, "num_predict": 12}}
        answer = (await http.post("/api/chat", json=asked | {"stream": False})).json()
        assert answer["message"]["content"] == await ask(http, QUESTIONS[0], "tiny:1b@v1") != bare


async def test_the_window_is_as_set_and_said_everywhere(tmp_path: Path) -> None:
    model = random_llama(tmp_path / "tiny.gguf", keys={"context_length": 8192})
    window = {"context": 6144, "parallel": 2}
    async with calling(tmp_path, model=str(model), engine="auto", **window) as http:
        status = (await http.get("/burnish/status")).json()
        assert status["engine"]["window"] == window | {"trained": 8192}
        assert status["engine"]["longest_answer"] == 512, "it is small"
        listed = (await http.get("/v1/models")).json()["data"]
        assert {each["max_model_len"] for each in listed} == {6144}
        for words, code in ((2500, 200), (3500, 400)):
            message = {"role": "user", "content": "rust " * words}
            body = {"model": "default", "messages": [message], "max_tokens": 1}
            answer = await http.post("/v1/chat/completions", json=body)
            assert answer.status_code == code, answer.text
        assert "6144 tokens" in answer.json()["error"]["message"]


async def only_resident(http: httpx.AsyncClient, version: int) -> bool:
    return bool((await http.get("/burnish/status")).json()["live"]["resident"] == [version])
