"""burnish in front of an Ollama: it finds base and weights by itself, and a version answers with the real adapter."""

from __future__ import annotations

from pathlib import Path

import httpx
import openai

from burnish.adapters.hosts.fetch import SMALL_MODEL_DIGEST, ensure_small_model
from burnish.adapters.registry import Registry
from tests.support.inprocess import serving
from tests.support.lora import random_lora, register, write_peft
from tests.support.ollama_double import ollama_double

QUESTION = [{"role": "user", "content": "Name three colours."}]


async def test_a_version_goes_live_in_ollama(tmp_path: Path) -> None:
    registry = Registry(tmp_path / "data" / "adapters")
    register(registry, write_peft(tmp_path / "made", random_lora(1, strength=0.1)), SMALL_MODEL_DIGEST)
    registry.record(1, "live", "for the test", replaced=0)
    (tmp_path / "ollama").mkdir()
    async with (
        ollama_double(tmp_path / "ollama", "smollm2", ensure_small_model(), SMALL_MODEL_DIGEST) as ollama,
        serving(tmp_path, upstream=ollama.url, engine="auto") as (url, _),
        openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="-", http_client=httpx.AsyncClient(trust_env=False)) as client,
    ):  # fmt: skip

        async def ask(model: str) -> tuple[str, str]:
            stream = await client.chat.completions.create(
                model=model, messages=QUESTION, max_tokens=24, temperature=0, stream=True
            )
            chunks = [chunk async for chunk in stream]
            return chunks[0].model, "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)

        live, text = await ask("default")
        assert live.startswith("smollm2-burnish:v1-")
        assert await ask("smollm2:latest") == (live, text), "to Ollama the same name"
        listed = [each.id async for each in client.models.list()]
        assert listed == ["default", "smollm2", "smollm2@base", "smollm2@v1"], "the base only once"
        bare, untouched = await ask("smollm2@base")
        assert bare == "smollm2:latest"
        assert text != untouched
        async with httpx.AsyncClient(trust_env=False, timeout=60) as http:
            await http.post(f"{url}/burnish/adapters/rollback", json={"to": 0})
        assert await ask("smollm2") == (bare, untouched)
        assert (await ask("smollm2@v1"))[1] == text, "kept while there is room"
    assert list(ollama.models) == ["smollm2:latest"], "burnish leaves nothing but what is live"
