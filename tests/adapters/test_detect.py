from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest

from burnish.adapters.errors import EngineError
from burnish.adapters.hosts.api import EngineApi
from burnish.adapters.hosts.detect import Detected, detect, weights_digest
from burnish.adapters.hosts.foreign import demand_versions
from tests.support.upstream import Received, reply, upstream


@asynccontextmanager
async def engine(answers: dict[str, Any], refusals: dict[str, Any] | None = None) -> AsyncIterator[EngineApi]:
    """An engine that answers these paths with this JSON, some with status 400, and 404 else."""
    refused = refusals or {}

    async def script(request: Received, writer: asyncio.StreamWriter) -> None:
        found = {**answers, **refused}.get(request.target, {"detail": "Not Found"})
        content = found if isinstance(found, bytes) else orjson.dumps(found)
        known = "200 OK" if request.target in answers else "404 Not Found"
        status = "400 Bad Request" if request.target in refused else known
        await reply(content, status=status)(request, writer)

    async with upstream(script) as server:
        api = EngineApi(server.url + "/v1")
        try:
            yield api
        finally:
            await api.close()


def listing(*models: dict[str, Any]) -> dict[str, Any]:
    return {"/v1/models": {"object": "list", "data": list(models)}}


@pytest.mark.parametrize(
    ("cards", "found"),
    [
        (
            [
                {"id": "qwen@v3-0a1b2c3d", "owned_by": "vllm", "root": "/x", "parent": "qwen"},
                {"id": "qwen", "owned_by": "vllm", "root": "/", "parent": None},
            ],
            Detected("vllm", "qwen", Path("/")),
        ),
        (
            [{"id": "qwen", "owned_by": "sglang", "root": "Qwen/Qwen3-0.6B"}],
            Detected("sglang", "qwen", None, hub_id="Qwen/Qwen3-0.6B"),
        ),
        ([{"id": "gpt-5", "owned_by": "openai"}], Detected("other", "gpt-5", None)),
        ([{"id": "some-model", "object": "model"}], Detected("other", "some-model", None)),
    ],
    ids=["vllm", "sglang, weights elsewhere", "named", "anonymous"],
)
async def test_a_listing_names_the_engine_its_base_and_where_its_weights_are(
    cards: list[dict[str, Any]], found: Detected
) -> None:
    async with engine(listing(*cards)) as api:
        assert await detect(api) == found


async def test_ollama_names_the_blob(tmp_path: Path) -> None:
    blob = tmp_path / "sha256-1234"
    blob.touch()
    answers = {
        "/api/version": {"version": "0.12.0"},
        "/api/tags": {"models": [{"name": "smollm2-burnish:v1-00000000"}, {"name": "smollm2:latest"}]},
        "/api/show": {"modelfile": f'# Modelfile\nFROM {blob}\nTEMPLATE """x"""\n'},
    }
    async with engine(answers) as api:
        assert await detect(api) == Detected("ollama", "smollm2", blob)
        assert await detect(api, "smollm2:latest") == Detected("ollama", "smollm2", blob)


async def test_llamacpp_says_where_its_model_is(tmp_path: Path) -> None:
    model = tmp_path / "model.gguf"
    model.touch()
    answers = listing({"id": "small", "owned_by": "llamacpp"}) | {"/props": {"model_path": str(model)}}
    async with engine(answers) as api:
        assert await detect(api) == Detected("llamacpp", "small", model)
    status = {"value": "unloaded", "args": ["llama-server", "--alias", "small", "--model", str(model)]}
    async with engine(listing({"id": "small", "owned_by": "llamacpp", "status": status})) as api:
        assert await detect(api) == Detected("llamacpp", "small", model), "a router"


def lm_studio(*cards: tuple[str, str, str]) -> dict[str, Any]:
    """The answers of LM Studio with these models, each with its type and state, as its documentation shows them."""
    own = [
        {"id": name, "object": "model", "type": kind, "compatibility_type": "gguf", "state": state}
        for name, kind, state in cards
    ]
    plain = [{"id": name, "object": "model", "owned_by": "organization_owner"} for name, _, _ in cards]
    return listing(*plain) | {
        "/api/v0/models": {"object": "list", "data": own},
        "/api/version": {"error": "Unexpected endpoint or method. (GET /api/version)"},
    }


async def test_lm_studio_is_known_by_its_own_list() -> None:
    """It answers 200 to every path."""
    answers = lm_studio(("qwen3-0.6b", "llm", "loaded"))
    async with engine(answers) as api:
        found = await detect(api)
        assert (found, found.takes_versions) == (Detected("lmstudio", "qwen3-0.6b", None), False)
        remedy = r"takes no adapters.* --as merged-gguf` and `lms import NAME.gguf`"
        with pytest.raises(EngineError, match=remedy):
            demand_versions(found, api.url)
    async with engine(answers | {"/api/v0/models": answers["/api/version"]}) as api:
        other = await detect(api)
        assert other.kind == "other"
        with pytest.raises(EngineError, match=r"it isn't vLLM, SGLang, Ollama, llama.cpp or MLX"):
            demand_versions(other, api.url)


async def test_of_lm_studios_models_a_loaded_one_that_talks_goes_first() -> None:
    answers = lm_studio(
        ("nomic-embed", "embeddings", "loaded"),
        ("qwen3-8b", "llm", "not-loaded"),
        ("gemma-3", "vlm", "loaded"),
    )
    async with engine(answers) as api:
        assert await detect(api) == Detected("lmstudio", "gemma-3", None)
        assert await detect(api, "qwen3-8b") == Detected("lmstudio", "qwen3-8b", None)
        with pytest.raises(EngineError, match="serves no model 'qwen3'; it has gemma-3"):
            await detect(api, "qwen3")


MLX = {"/v1/completions": {"error": "adapter must be of type str"}}


async def test_mlx_is_known_by_what_it_finds_wrong(tmp_path: Path) -> None:
    cached = {"id": "mlx-community/Qwen3-0.6B-4bit", "object": "model", "created": 1}
    own = {"id": str(tmp_path), "object": "model", "created": 1}
    async with engine(listing(cached, own), MLX) as api:
        assert await detect(api) == Detected("mlx", str(tmp_path), tmp_path)
        with pytest.raises(EngineError, match=r"mlx_lm\.server --model /path/to/directory"):
            await detect(api, "mlx-community/Qwen3-0.6B-4bit")
    async with engine(listing(cached), MLX) as api:
        with pytest.raises(EngineError, match="doesn't list the directory"):
            await detect(api)


async def test_mlx_lists_nothing_where_the_hub_has_no_cache(tmp_path: Path) -> None:
    async with engine({"/v1/models": b""}, MLX) as api:
        with pytest.raises(EngineError, match="set model to that path"):
            await detect(api)
        assert await detect(api, str(tmp_path)) == Detected("mlx", str(tmp_path), tmp_path)


@pytest.mark.parametrize("refused", [{"error": "model is missing"}, None])
async def test_a_server_that_says_nothing_of_adapters_is_not_mlx(refused: Any) -> None:
    answers = listing({"id": "some-model"}) | {"/v1/completions": {"choices": []}}
    async with engine(answers, {"/v1/completions": refused} if refused else {}) as api:
        assert await detect(api) == Detected("other", "some-model", None)


@pytest.mark.parametrize(
    ("answers", "model", "words"),
    [
        (listing(), None, "serves no model yet"),
        (listing({"id": "a"}, {"id": "b"}), "c", "serves no model 'c'; it has a, b"),
        ({"/v1/models": ["a"]}, None, "does not list its models"),
        ({}, None, "404"),
    ],
)
async def test_what_is_wrong_is_said(answers: dict[str, Any], model: str | None, words: str) -> None:
    async with engine(answers) as api:
        with pytest.raises(EngineError, match=words):
            await detect(api, model)
    with pytest.raises(EngineError, match="cannot be reached"):
        await detect(api, model)


def test_a_directory_is_known_by_all_its_weights(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="safetensors"):
        weights_digest(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"one")
    one = weights_digest(tmp_path)
    assert one.startswith("sha256:")
    (tmp_path / "more.safetensors").write_bytes(b"two")
    assert weights_digest(tmp_path) != one
    (tmp_path / "more.safetensors").unlink()
    assert weights_digest(tmp_path) == one
    assert weights_digest(tmp_path / "model.safetensors") != one
