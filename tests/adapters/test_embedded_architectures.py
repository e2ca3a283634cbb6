"""The embedded engine on a model that is no llama."""

from __future__ import annotations

from pathlib import Path

import aiohttp
import pytest

from burnish.adapters.hosts.base import Endpoint
from burnish.adapters.hosts.embedded import EmbeddedHost
from tests.support.engine import headers
from tests.support.lora import version_of, write_peft

pytest.importorskip("torch")

PROMPT = list(range(1000, 1012))
TOKENS = 8


async def said(endpoint: Endpoint) -> str:
    body = {"prompt": PROMPT, "max_tokens": TOKENS, "temperature": 0, "model": endpoint.model}
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{endpoint.url}/v1/completions", json=body, headers=headers(endpoint)) as response,
    ):
        response.raise_for_status()
        return str((await response.json())["choices"][0]["text"])


# peft 0.21 asks transformers 5.23 for an attribute under its old name.
@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing.:FutureWarning")
@pytest.mark.slow
async def test_a_qwen3_serves_its_adapter(tmp_path: Path) -> None:
    from peft import PeftModel

    from tests.support.tiny_gguf import tiny_lora, words
    from tests.support.tiny_models import greedy, tiny_base, tiny_model, tiny_shape

    shape = tiny_shape("qwen3")
    model = tiny_model(shape)
    host = EmbeddedHost(
        tiny_base(tmp_path / "tiny.gguf", shape, model), base_model="tiny", state_dir=tmp_path / "state"
    )
    adapter = write_peft(tmp_path / "peft", tiny_lora(shape, 1))
    try:
        base = await host.load(None)
        version = await host.load(version_of(adapter, 1, host.base_digest, "tiny"))
        await host.probe(version)
        texts = [await said(base), await said(version)]
    finally:
        await host.close()
    expected = [words(greedy(model, PROMPT, TOKENS))]
    expected.append(words(greedy(PeftModel.from_pretrained(model, adapter).eval(), PROMPT, TOKENS)))
    assert texts == expected
    assert texts[0] != texts[1]
