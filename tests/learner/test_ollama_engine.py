"""burnish in front of an Ollama: it finds base and weights by itself, and a version answers with the real adapter."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import openai
import pytest
from openai.types.chat import ChatCompletionUserMessageParam

from burnish.adapters.hosts.detect import weights_digest
from burnish.adapters.registry import Registry
from tests.proxy.log.exchanges import until
from tests.support.inprocess import serving
from tests.support.lora import register, write_peft
from tests.support.ollama_double import WITH_ADAPTERS, WITHOUT_ADAPTERS, ollama_double
from tests.support.patience import within
from tests.support.tiny_gguf import TINY, random_llama, tiny_lora

QUESTION: list[ChatCompletionUserMessageParam] = [{"role": "user", "content": "Name three colours."}]


@pytest.mark.parametrize(
    ("release", "way"), [(WITH_ADAPTERS, "adapters"), (WITHOUT_ADAPTERS, "merged models")]
)
async def test_a_version_goes_live_in_ollama(tmp_path: Path, release: str, way: str) -> None:
    registry = Registry(tmp_path / "data" / "adapters")
    model = random_llama(tmp_path / "tiny.gguf")
    digest = weights_digest(model)
    register(registry, write_peft(tmp_path / "made", tiny_lora(TINY, 1)), digest)
    registry.record(1, "live", "for the test", replaced=0)
    (tmp_path / "ollama").mkdir()
    async with (
        ollama_double(tmp_path / "ollama", "tiny", model, digest, release=release) as ollama,
        serving(tmp_path, upstream=ollama.url, engine="auto") as (url, _),
        openai.DefaultAsyncHttpxClient(trust_env=False) as direct,
        openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="-", http_client=direct) as client,
    ):

        async def ask(model: str) -> tuple[str, str]:
            stream = await client.chat.completions.create(
                model=model, messages=QUESTION, max_tokens=24, temperature=0, stream=True
            )
            chunks = [chunk async for chunk in stream]
            return chunks[0].model, "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)

        live, text = await ask("default")
        assert live.startswith("tiny-burnish:v1-")
        assert await ask("tiny:latest") == (live, text), "to Ollama the same name"
        listed = [each.id async for each in client.models.list()]
        assert listed == ["default", "tiny", "tiny@base", "tiny@v1"], "the base only once"
        bare, untouched = await ask("tiny@base")
        assert bare == "tiny:latest"
        assert text != untouched
        async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=within(60)) as http:
            engine = (await http.get("/burnish/status")).json()["engine"]
            assert (engine["trouble"], engine["obstacle"], engine["way"]) == (None, None, way)
            await http.post("/burnish/adapters/rollback", json={"to": 0})
            assert await ask("tiny") == (bare, untouched)
            if way == "adapters":
                assert (await ask("tiny@v1"))[1] == text, "kept while there is room"
            else:
                # Deleted, because it shares no weights.
                await until(lambda: list(ollama.models) == ["tiny:latest"])
                await http.post("/burnish/adapters/rollback", json={"to": 1})
                assert await ask("tiny") == (live, text), "made again from the same adapter"
                await http.post("/burnish/adapters/rollback", json={"to": 0})
    assert list(ollama.models) == ["tiny:latest"], "burnish leaves nothing but what is live"


async def test_an_ollama_that_dies_in_a_swap_serves_the_old_version_when_it_is_back(tmp_path: Path) -> None:
    registry = Registry(tmp_path / "data" / "adapters")
    model = random_llama(tmp_path / "tiny.gguf")
    digest = weights_digest(model)
    for seed in (1, 2):
        register(registry, write_peft(tmp_path / f"made-{seed}", tiny_lora(TINY, seed)), digest)
    registry.record(1, "live", "for the test", replaced=0)
    (tmp_path / "ollama").mkdir()
    body = {"model": "default", "messages": QUESTION, "max_tokens": 8, "temperature": 0}
    async with (
        ollama_double(tmp_path / "ollama", "tiny", model, digest, release=WITHOUT_ADAPTERS) as ollama,
        serving(tmp_path, upstream=ollama.url, engine="auto") as (url, _),
        httpx.AsyncClient(base_url=url, trust_env=False, timeout=within(60)) as http,
    ):
        before = (await http.post("/v1/chat/completions", json=body)).json()
        ollama.faults.add("dies_in_upload")
        refused = await http.post("/burnish/adapters/2/promote", json={"force": True})
        assert "Ollama stopped while" in refused.json()["error"]["message"]
        assert registry.live() == 1
        ollama.faults, ollama.dead = set(), False  # it was started again
        async with asyncio.timeout(within(30)):
            while (answer := await http.post("/v1/chat/completions", json=body)).is_error:
                await asyncio.sleep(0.1)
        assert [answer.json()[name] for name in ("choices", "model")] == [before["choices"], before["model"]]
        assert [name for name in ollama.models if ":v2-" in name] == []
