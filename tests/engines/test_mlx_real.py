"""A real mlx_lm.server on the real small model, in float32."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI

from burnish.adapters.errors import EngineError, IncompatibleAdapter, NotApplied, ProbeFailed
from burnish.adapters.hosts.api import EngineApi
from burnish.adapters.hosts.base import Endpoint
from burnish.adapters.hosts.detect import Detected, detect, weights_digest
from burnish.adapters.hosts.foreign import open_host
from burnish.adapters.hosts.mlx import MlxHost
from burnish.adapters.manifest import AdapterVersion
from burnish.adapters.proof import generates, prove
from tests.engines.conftest import make_live
from tests.support.engine import answer, deltas
from tests.support.inprocess import serving
from tests.support.lora import Make, version_of
from tests.support.real_engines import mlx_server, needs

pytestmark = [
    pytest.mark.engine,
    needs("mlx"),
]

TOKENS = 8
PROMPTS = ("The capital of France is", "Once upon a time there was a", "def add(a, b):")
STORY = "Tell a long story."

Open = Callable[[], MlxHost]


@pytest.fixture(scope="session")
def digest(base: Path) -> str:
    return weights_digest(base)


@pytest.fixture
def open_again(mlx: str, base: Path, digest: str, tmp_path: Path, versions: list[AdapterVersion]) -> Open:
    """One host after another on the same server, versions and state."""
    return lambda: MlxHost(
        mlx, base_path=base, base_digest=digest, state_dir=tmp_path / "state", versions=lambda: versions
    )


@pytest.fixture
async def host(open_again: Open) -> AsyncIterator[MlxHost]:
    host = open_again()
    yield host
    await host.close()


async def greedy(endpoint: Endpoint, prompt: str) -> list[int]:
    """The tokens that MLX thinks likeliest, one after another."""
    body = {"model": endpoint.model, "prompt": prompt, "max_tokens": TOKENS, "temperature": 0}
    body |= {"logprobs": True} | dict(endpoint.fields)
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{endpoint.url}/v1/completions", json=body) as response,
    ):
        response.raise_for_status()
        return [each["id"] for each in (await response.json())["choices"][0]["logprobs"]["content"]]


async def streamed(endpoint: Endpoint, tokens: int) -> str:
    return "".join([delta.text async for delta in deltas(endpoint, STORY, tokens)])


async def test_it_is_recognised_with_its_directory(mlx: str, base: Path, tmp_path: Path) -> None:
    api = EngineApi(mlx + "/v1")
    found = await detect(api)
    assert found == Detected("mlx", str(base), base)
    opened = open_host(found, api, base, versions=list, state_dir=tmp_path / "state", preset=None)
    assert isinstance(opened, MlxHost)
    await opened.check()
    assert (await opened.served()).keys() == {0}
    await opened.close()
    await api.close()


async def test_without_a_hub_cache_the_name_is_needed(base: Path, tmp_path: Path) -> None:
    with mlx_server(base, tmp_path / "no hub", tmp_path / "log") as url:
        api = EngineApi(url)
        with pytest.raises(EngineError, match="set model to that path"):
            await detect(api)
        assert await detect(api, str(base)) == Detected("mlx", str(base), base)
        await api.close()


# peft 0.21 asks transformers 5.23 for an attribute under its old name.
@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing.:FutureWarning")
async def test_greedy_texts_are_those_of_peft(host: MlxHost, make: Make, base: Path) -> None:
    torch = pytest.importorskip("torch")
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.set_num_threads(1)
    tokenizer = AutoTokenizer.from_pretrained(base)
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32).eval()

    def disagreements(texts: list[list[int]]) -> int:
        """How many texts the present model would not have written greedily: one forward pass shows it."""
        wrong = 0
        for prompt, text in zip(PROMPTS, texts, strict=True):
            ids = tokenizer(prompt, add_special_tokens=False).input_ids
            with torch.inference_mode():
                likeliest = model(torch.tensor([ids + text])).logits[0].argmax(-1).tolist()
            wrong += likeliest[len(ids) - 1 : -1] != text
        return wrong

    bare = await host.load(None)
    base_texts = [await greedy(bare, prompt) for prompt in PROMPTS]
    assert all(len(text) == TOKENS for text in base_texts)
    assert disagreements(base_texts) == 0
    adapters = (
        make(1),
        make(2, rank=8, use_rslora=True),
        make(3, only="layers.7.self_attn.q_proj", target_modules=["q_proj"], layers_to_transform=[7]),
    )
    for version in adapters:
        endpoint = await host.load(version)
        await generates(host, endpoint)
        texts = [await greedy(endpoint, prompt) for prompt in PROMPTS]
        if isinstance(model, PeftModel):
            model.load_adapter(version.path, adapter_name=str(version.number))
        else:
            model = PeftModel.from_pretrained(model, version.path, adapter_name=str(version.number)).eval()
        model.set_adapter(str(version.number))
        assert disagreements(texts) == 0
        assert texts != base_texts or version.number == 3  # a single layer's queries
    assert await greedy(bare, PROMPTS[0]) == base_texts[0]


async def test_a_request_ends_on_the_version_on_which_it_began(host: MlxHost, make: Make) -> None:
    """The server waits for the running answers, then loads the other version; nothing is mixed or cut."""
    first, second = await host.load(make(4)), await host.load(make(5))
    alone = [await streamed(first, 8), await streamed(second, 8), await streamed(await host.load(None), 8)]
    assert len(set(alone)) == 3
    began = asyncio.Event()

    async def running() -> str:
        text = ""
        async for delta in deltas(first, STORY, 8):
            text += delta.text
            began.set()
        return text

    async def others() -> tuple[str, ...]:
        await began.wait()
        return await asyncio.gather(
            streamed(second, 8), streamed(await host.load(None), 8), streamed(first, 8)
        )

    found = await asyncio.gather(running(), others())
    assert [found[0], *found[1]] == [alone[0], alone[1], alone[2], alone[0]]


async def test_versions_come_and_go_and_outlive_a_restart_of_ours(
    host: MlxHost, make: Make, versions: list[AdapterVersion], open_again: Open
) -> None:
    endpoint = await host.load(make(6))
    assert await host.load(versions[0]) == endpoint, "loading is idempotent"
    text = await answer(endpoint, STORY, 4)
    again = open_again()
    assert (await again.served())[6] == endpoint
    await again.unload(6)
    assert (await host.served()).keys() == {0}
    assert await host.load(versions[0]) == endpoint
    assert await answer(endpoint, STORY, 4) == text
    await again.close()


async def test_new_weights_under_an_old_number_are_not_answered_from_an_old_cache(
    host: MlxHost, make: Make, versions: list[AdapterVersion], digest: str
) -> None:
    old = await host.load(make(7))
    old_text = await answer(old, STORY, 6)
    other = make(8)
    truth = await answer(await host.load(other), STORY, 6)
    new = version_of(shutil.copytree(other.path, other.path.parent / "v7-again"), 7, digest)
    endpoint = await host.load(new)
    assert endpoint != old
    assert await answer(endpoint, STORY, 6) == truth != old_text


async def test_burnish_translates_the_live_version(mlx: str, base: Path, digest: str, tmp_path: Path) -> None:
    make_live(tmp_path / "data", digest, str(base))
    async with (
        serving(tmp_path, upstream=mlx, engine="auto") as (url, _),
        AsyncAnthropic(base_url=url, api_key="-", max_retries=0) as claude,
        AsyncOpenAI(base_url=f"{url}/v1", api_key="-", max_retries=0) as gpt,
    ):
        texts = []
        for model in ("default", f"{base}@base"):
            asked: Any = {"model": model, "extra_body": {"temperature": 0}}
            told = await claude.messages.create(
                messages=[{"role": "user", "content": STORY}], max_tokens=TOKENS, **asked
            )
            response = await gpt.responses.create(input=STORY, max_output_tokens=TOKENS, **asked)
            in_chat = await streamed(Endpoint(url, model, 0), TOKENS)
            assert told.content[0].text == response.output_text == in_chat
            assert (told.stop_reason, response.status) == ("max_tokens", "incomplete")
            assert told.usage.output_tokens == response.usage.output_tokens == TOKENS
            texts.append(in_chat)
    assert texts[0] != texts[1]


async def test_burnish_rolls_back_during_a_stream(mlx: str, base: Path, digest: str, tmp_path: Path) -> None:
    make_live(tmp_path / "data", digest, str(base))
    async with (
        serving(tmp_path, upstream=mlx, engine="auto") as (url, _),
        aiohttp.ClientSession(url) as http,
    ):
        async with http.get("/burnish/status") as status:
            state = await status.json()
        assert (state["live"]["version"], state["engine"]["trouble"]) == (1, None)
        live, bare = Endpoint(url, "default", 1), Endpoint(url, f"{base}@base", 0)
        texts = [await streamed(live, 8), await streamed(bare, 8)]
        assert texts[0] != texts[1]
        rollback: asyncio.Task[int] | None = None

        async def roll_back() -> int:
            async with http.post("/burnish/adapters/rollback", json={"to": 0}) as answered:
                return int((await answered.json())["live"])

        text = ""
        async for delta in deltas(live, STORY, 8):
            text += delta.text
            rollback = rollback or asyncio.ensure_future(roll_back())
        assert rollback is not None
        assert await rollback == 0
        assert text == texts[0], "the stream ended on the version on which it began"
        assert await streamed(live, 8) == texts[1]


async def test_an_adapter_that_the_server_ignores_is_found_out(host: MlxHost, make: Make) -> None:
    """The trap: beside the name "default_model" it says nothing, and answers as the bare model."""
    version = make(9)
    endpoint = await host.load(version)
    await prove(host, version, endpoint)
    with pytest.raises(NotApplied, match="ignores it"):
        await prove(host, version, replace(endpoint, model="default_model"))


async def test_another_models_adapter_is_refused_and_the_server_survives(host: MlxHost, make: Make) -> None:
    with pytest.raises(IncompatibleAdapter, match="use_dora"):
        await host.load(make(10, use_dora=True))
    endpoint = await host.load(make(11))
    # What we could not have written, e.g. for a base that was exchanged: mlx-lm itself refuses it, too.
    path = Path(dict(endpoint.fields)["adapters"]) / "adapter_config.json"
    config = json.loads(path.read_text())
    config["lora_parameters"]["keys"] = ["model.layers.99.self_attn.q_proj"]
    path.write_text(json.dumps(config))
    with pytest.raises(ProbeFailed, match="not an adapter parameter"):
        await generates(host, endpoint)
    await generates(host, await host.load(None))
