"""Captured token ids are those that a real vLLM and a real mlx_lm.server saw and made.

tests/proxy/relay/test_token_ids.py says the same of llama.cpp.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import product
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import AsyncOpenAI

from tests.support.inprocess import calling
from tests.support.patience import within
from tests.support.real_engines import needs
from tests.support.token_ids import CHAT, Json, captured, told

pytestmark = [
    pytest.mark.engine,
    # Whichever test comes first waits for the boot.
    pytest.mark.timeout(600),
]
needs_vllm, needs_mlx = needs("vllm"), needs("mlx")
both = pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
QUESTION = [{"role": "user", "content": "Repeat: 😀 häß 你好"}]
BODY: Json = {"messages": QUESTION, "max_tokens": 6, "temperature": 0}
OPTIONS: dict[str, Json] = {
    "plain": {},
    "counts": {"stream_options": {"include_usage": True}},
    "own log-probabilities": {"logprobs": True},
    "stop words": {"stop": ["ä"]},
}
# In nats, of the same weights in the same engine, in batches of another shape.
TOLERANCE = 1e-3


@asynccontextmanager
async def pair(tmp_path: Path, engine: str) -> AsyncIterator[tuple[httpx.AsyncClient, httpx.AsyncClient]]:
    """A burnish that captures, and the engine itself."""
    async with (
        calling(tmp_path, upstream=engine, capture={"tokens": True}) as burnish,
        httpx.AsyncClient(base_url=engine, trust_env=False, timeout=within(120)) as alone,
    ):
        yield burnish, alone


async def ask(http: httpx.AsyncClient, path: str = CHAT, **body: Any) -> httpx.Response:
    answer = await http.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return answer


@pytest.fixture(scope="module")
def made_by_mlx(mlx: str, base: Path) -> Json:
    """Its own answer, with the ids that it chose."""
    body = BODY | {"model": str(base), "logprobs": True}
    answer: Json = httpx.post(mlx + CHAT, json=body, timeout=within(120), trust_env=False).json()
    return answer


@needs_vllm
@pytest.mark.parametrize(
    ("name", "streamed"), [case for case in product(OPTIONS, [False, True]) if case != ("counts", False)]
)
async def test_vllm(tmp_path: Path, vllm: str, name: str, streamed: bool) -> None:
    body = BODY | OPTIONS[name] | {"model": "smollm2", "stream": streamed}
    async with pair(tmp_path, vllm) as (burnish, alone):
        expected, answer = await ask(alone, **body), await ask(burnish, **body)
        assert told(answer) == told(expected)
        tokens = await captured(burnish, answer)
        # The engine's own: what it makes of the same ids.
        own = {"model": "smollm2", "prompt": tokens["prompt"], "max_tokens": 6, "temperature": 0}
        own |= {"return_token_ids": True, "logprobs": 0} | ({"stop": body["stop"]} if "stop" in body else {})
        (made,) = (await ask(alone, "/v1/completions", **own)).json()["choices"]
        text = {"model": "smollm2", "messages": QUESTION}
        assert tokens["prompt"] == (await ask(alone, "/tokenize", **text)).json()["tokens"]
    assert tokens["reply"] == made["token_ids"]
    assert tokens["logprobs"] == pytest.approx(made["logprobs"]["token_logprobs"], abs=TOLERANCE)


@needs_vllm
@both
@pytest.mark.parametrize("path", ["/v1/messages", "/v1/responses"])
async def test_vllm_in_other_formats(tmp_path: Path, vllm: str, path: str, streamed: bool) -> None:
    body = {"messages": QUESTION, "max_tokens": 6}
    if path == "/v1/responses":
        body = {"input": QUESTION, "max_output_tokens": 6}
    async with pair(tmp_path, vllm) as (burnish, alone):
        answer = await ask(burnish, path, **body, model="smollm2", stream=streamed, temperature=0)
        assert "token_ids" not in answer.text
        tokens = await captured(burnish, answer)
        text = {"model": "smollm2", "messages": QUESTION}
        assert tokens["prompt"] == (await ask(alone, "/tokenize", **text)).json()["tokens"]
    assert len(tokens["reply"]) == len(tokens["logprobs"]) >= 1


@needs_mlx
@both
@pytest.mark.parametrize("name", ["counts", "own log-probabilities"])
async def test_mlx(tmp_path: Path, mlx: str, made_by_mlx: Json, name: str, streamed: bool) -> None:
    body = BODY | OPTIONS[name] | {"model": made_by_mlx["model"], "stream": streamed}
    if not streamed:
        body.pop("stream_options", None)
    async with pair(tmp_path, mlx) as (burnish, alone):
        expected, answer = told(await ask(alone, **body)), await ask(burnish, **body)
        found = told(answer)
        if streamed:
            # Its own streams have no log-probabilities, and say so of no member.
            assert (found.pop("logprobs") is not None) == bool(body.get("logprobs"))
            expected.pop("logprobs")
            found["members"] -= {"logprobs"}
        assert found == expected
        tokens = await captured(burnish, answer)
    made = made_by_mlx["choices"][0]["logprobs"]["content"]
    assert tokens["missing"] is None
    assert tokens["prompt"] == []
    assert tokens["reply"] == [each["id"] for each in made]
    assert tokens["logprobs"] == pytest.approx([each["logprob"] for each in made], abs=TOLERANCE)
    assert len(tokens["reply"]) == made_by_mlx["usage"]["completion_tokens"]


@needs_mlx
async def test_mlx_does_not_tell_its_choice_among_the_likeliest(tmp_path: Path, mlx: str, base: Path) -> None:
    async with pair(tmp_path, mlx) as (burnish, _):
        few = BODY | {"model": str(base), "max_tokens": 2}
        answer = await ask(burnish, **few, logprobs=True, top_logprobs=2)
        assert "top_logprobs" in (await captured(burnish, answer))["missing"]


@needs_mlx
async def test_the_official_client_reads_a_captured_stream(tmp_path: Path, mlx: str, base: Path) -> None:
    async with pair(tmp_path, mlx) as (burnish, _):
        client = AsyncOpenAI(base_url=f"{burnish.base_url}/v1", api_key="-")
        few = BODY | {"model": str(base), "max_tokens": 4}
        made: Any = await client.chat.completions.create(**few, stream=True)
        texts = [each.choices[0].delta.content or "" async for each in made if each.choices]
        await client.close()
    assert "".join(texts)
