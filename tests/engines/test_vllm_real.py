"""A real vLLM on the real small model: what the double says, and what only real weights can show."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from burnish.adapters.errors import EngineRefused, IncompatibleAdapter
from burnish.adapters.hosts.api import EngineApi
from burnish.adapters.hosts.base import Endpoint, engine_name
from burnish.adapters.hosts.fetch import ensure_small_model, file_digest
from burnish.adapters.hosts.vllm import VllmHost
from burnish.adapters.manifest import AdapterVersion
from burnish.adapters.proof import generates
from tests.engines.conftest import VLLM_MAX_RANK
from tests.support.engine import OPENINGS, deltas
from tests.support.lora import Make, version_of
from tests.support.real_engines import needs

pytestmark = [
    pytest.mark.engine,
    needs("vllm"),
    # Whichever test comes first waits for the boot.
    pytest.mark.timeout(600),
]

TOKENS = 16
# In nats, both in fp32.
LOGPROB_TOLERANCE = 1e-3
STORY = "Tell a long story."


@pytest.fixture(scope="session")
def digest() -> str:
    return file_digest(ensure_small_model())


@pytest.fixture
async def host(vllm: str, digest: str, versions: list[AdapterVersion]) -> AsyncIterator[VllmHost]:
    host = VllmHost(vllm, base_model="smollm2", base_digest=digest, versions=lambda: versions)
    yield host
    for version in versions:
        await host.unload(version.number)
    await host.close()


@dataclass(frozen=True, slots=True)
class Text:
    """What vLLM thinks likeliest, token by token."""

    tokens: list[int]
    logprobs: list[float]


async def greedy(endpoint: Endpoint, prompt: list[int]) -> Text:
    body: dict[str, Any] = {"model": endpoint.model, "prompt": prompt, "max_tokens": TOKENS, "logprobs": 0}
    body |= {"temperature": 0, "return_token_ids": True, "ignore_eos": True}
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{endpoint.url}/v1/completions", json=body) as response,
    ):
        response.raise_for_status()
        choice = (await response.json())["choices"][0]
    return Text(choice["token_ids"], choice["logprobs"]["token_logprobs"])


async def answer(endpoint: Endpoint) -> str:
    """The whole greedy answer to a chat message."""
    return "".join([delta.text async for delta in deltas(endpoint, STORY, model=endpoint.model)])


async def test_three_adapters_come_and_go_beside_each_other(host: VllmHost, make: Make) -> None:
    await host.check()
    base = await host.load(None)
    texts = {base.model: await answer(base)}
    for seed in (1, 2, 3):
        version = make(seed)
        endpoint = await host.load(version)
        await generates(host, endpoint)
        assert await host.load(version) == endpoint, "loading is idempotent"
        texts[endpoint.model] = await answer(endpoint)
    assert len(set(texts.values())) == 4, "each answers with its own weights"
    assert (await host.served()).keys() == {0, 1, 2, 3}
    for seed in (1, 2, 3):
        await host.unload(seed)
    assert (await host.served()).keys() == {0}
    assert await answer(base) == texts[base.model]


# peft 0.21 asks transformers 5.23 for an attribute under its old name.
@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing.:FutureWarning")
async def test_greedy_texts_are_those_of_peft(host: VllmHost, make: Make, weights: Path) -> None:
    torch = pytest.importorskip("torch")
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.set_num_threads(1)
    tokenizer = AutoTokenizer.from_pretrained(weights)
    prompts = [tokenizer(prompt, add_special_tokens=False).input_ids for prompt in OPENINGS]
    model = AutoModelForCausalLM.from_pretrained(weights, dtype=torch.float32).eval()

    def agrees(texts: list[Text]) -> bool:
        """Whether the present model would have written them greedily, as sure of each: one forward pass shows it."""
        for prompt, text in zip(prompts, texts, strict=True):
            with torch.inference_mode():
                logits = model(torch.tensor([prompt + text.tokens])).logits[0, len(prompt) - 1 : -1]
            sure, likeliest = logits.log_softmax(-1).max(-1)
            furthest = max(abs(a - b) for a, b in zip(sure.tolist(), text.logprobs, strict=True))
            if likeliest.tolist() != text.tokens or furthest > LOGPROB_TOLERANCE:
                return False
        return True

    endpoint = await host.load(None)
    base_texts = [await greedy(endpoint, prompt) for prompt in prompts]
    assert all(len(text.tokens) == TOKENS for text in base_texts)
    assert agrees(base_texts)
    for seed in (4, 5, 6):
        version = make(seed)
        endpoint = await host.load(version)
        texts = [await greedy(endpoint, prompt) for prompt in prompts]
        if seed == 4:
            model = PeftModel.from_pretrained(model, version.path, adapter_name="4").eval()
        else:
            model.load_adapter(version.path, adapter_name=str(seed))
        model.set_adapter(str(seed))
        assert agrees(texts)
        assert texts != base_texts


async def test_a_rank_above_the_limit_is_refused_and_the_server_survives(host: VllmHost, make: Make) -> None:
    with pytest.raises(IncompatibleAdapter, match="--max-lora-rank 32"):
        await host.load(make(7, rank=VLLM_MAX_RANK * 2))
    assert (await host.served()).keys() == {0}
    await generates(host, await host.load(make(8, rank=VLLM_MAX_RANK)))


async def test_dora_is_refused_by_us_and_by_vllm(host: VllmHost, make: Make, vllm: str) -> None:
    version = make(9, use_dora=True)
    with pytest.raises(IncompatibleAdapter, match="use_dora"):
        await host.load(version)
    api = EngineApi(vllm)
    with pytest.raises(EngineRefused) as refused:
        body = {"lora_name": engine_name(version), "lora_path": str(version.path)}
        await api.ask("POST", "/v1/load_lora_adapter", body)
    await api.close()
    assert refused.value.status == 500
    assert isinstance(host.explained(refused.value, version, 4), IncompatibleAdapter)
    await generates(host, await host.load(None))


async def test_new_weights_under_an_old_number_are_not_answered_from_an_old_cache(
    host: VllmHost, make: Make, versions: list[AdapterVersion], digest: str
) -> None:
    """As after a data directory was made anew: v12 exists twice, and the second is not the first."""
    old = make(12)
    old_text = await answer(await host.load(old))
    await host.unload(12)
    versions.clear()
    other = make(13)
    truth = await answer(await host.load(other))
    new = version_of(shutil.copytree(other.path, other.path.parent / "v12-again"), 12, digest)
    versions.append(new)
    assert engine_name(new) != engine_name(old)
    assert await answer(await host.load(new)) == truth != old_text


async def test_a_directory_that_vllm_cannot_see_says_so(host: VllmHost, make: Make, vllm: str) -> None:
    version = make(10)
    api = EngineApi(vllm)
    with pytest.raises(EngineRefused) as refused:
        await api.ask("POST", "/v1/load_lora_adapter", {"lora_name": "x", "lora_path": "/nowhere/at/all"})
    await api.close()
    assert "cannot see" in str(host.explained(refused.value, version, 4))


async def test_unloading_during_a_stream_leaves_its_text_alone(host: VllmHost, make: Make) -> None:
    endpoint = await host.load(make(11))
    alone = "".join([d.text async for d in deltas(endpoint, STORY, 48, model=endpoint.model)])
    texts = []
    async for delta in deltas(endpoint, STORY, 48, model=endpoint.model):
        texts.append(delta.text)
        if len(texts) == 5:
            await host.unload(11)
    assert "".join(texts[:5])
    assert "".join(texts[5:])
    assert "".join(texts) == alone
    assert (await host.served()).keys() == {0}
