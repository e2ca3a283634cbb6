"""Which routes of an engine a caller reaches, however their paths are spelt."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import quote, urlsplit

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from burnish.proxy.access.paths import MAX_PATH, purpose_of
from burnish.proxy.http.errors import InvalidRequest
from tests.learner.test_foreign_engine import world
from tests.support.inprocess import calling, listening
from tests.support.vllm_double import Engine

VLLM = """/sleep /wake_up /pause /resume /collective_rpc /server_info /reset_prefix_cache /reset_mm_cache
/reset_encoder_cache /start_profile /stop_profile /scale_elastic_ep /v1/load_lora_adapter /v1/unload_lora_adapter
/init_weight_transfer_engine /update_weights /start_weight_update /start_draft_weight_update /finish_weight_update
/update_weight_version /weight_checker /abort_requests"""
SGLANG = """/flush_cache /hicache/storage-backend /clear_hicache_storage_backend /start_expert_distribution_record
/dump_expert_distribution_record /update_weights_from_disk /update_weights_from_tensor /update_weights_from_ipc
/update_weights_from_distributed /init_weights_update_group /destroy_weights_update_group
/send_weights_to_remote_instance /init_weights_send_group_for_remote_instance /get_weights_by_name /weights_checker
/release_memory_occupation /resume_memory_occupation /load_lora_adapter /load_lora_adapter_from_tensors
/unload_lora_adapter /open_session
/close_session /configure_logging /abort_request /pause_generation /continue_generation /slow_down /freeze_gc
/set_internal_state /get_server_info /set_trace_level /generate_from_file /dumper/reset"""
LLAMA_CPP = "/lora-adapters /slots /slots/0 /props /models/load /models/unload /cors-proxy /tools"
LM_STUDIO = "/api/v1/models/load /api/v1/models/unload /api/v1/models/download /api/v0/models/load"
LM_STUDIO += " /models/download"
OLLAMA = "/api/create /api/pull /api/push /api/blobs/sha256:00 /api/delete /api/copy"
MANAGEMENT = [*VLLM.split(), *SGLANG.split(), *LLAMA_CPP.split(), *LM_STUDIO.split(), *OLLAMA.split()]
ANSWERING = """/ /v1 /v1/chat/completions /v1/completions /v1/responses/resp_1/cancel
/v1/messages/count_tokens /v1/models/m
/v1/models/org/m /v1/embeddings /v1/audio/transcriptions /v1/images/generations /v1/rerank /v2/rerank /rerank /score
/pooling /classify /v1/classify /tokenize /detokenize /tokenizer_info /health /ping /version /load /v1/realtime
/invocations /inference/v1/generate /generate /encode /get_model_info /v1/loads /v1/conversations/c_1 /completion
/chat/completions /completions /infill /embedding /embeddings /reranking /apply-template /v1/health
/v1/files/f/content /api/chat /api/generate /api/tags /api/ps /api/show /api/version /api/embed /api/embeddings
/v1/responses/input_tokens /v1beta/models/m:generateContent /openai/deployments/d/chat/completions
/openai/v1/responses /v1beta/openai/embeddings"""
INFERENCE = ANSWERING.split()
OTHER = ["/modelsx", "/api/me", "/is_sleeping", "/next/release", "/admin"]


@pytest.mark.parametrize("path", MANAGEMENT)
def test_routes_that_change_an_engine(path: str) -> None:
    bare = path.removeprefix("/v1")
    for way in (bare, f"/v1{bare}", f"/v1/v1//{bare}/", bare.upper(), f"/V1{bare}/x", quote(quote(bare, ""))):
        assert purpose_of(way) in ("management", "models")


@pytest.mark.parametrize("path", INFERENCE)
def test_routes_that_answer(path: str) -> None:
    assert purpose_of(path) == "inference"


@pytest.mark.parametrize("path", OTHER)
def test_routes_that_nobody_knows(path: str) -> None:
    assert purpose_of(path) == "other"


UNREADABLE = [
    "/v1/../api/pull", "/v1/..%2fapi/pull", "/%252e%252e/x", "/a\\..\\b", "/x\n", "/x%0a", "/x%250A", "/x%00", "/x\x85",
    "/x%20", "/x%E2%80%A8", "/x%0d%0ay", "/%" + "25" * 9 + "41", "/%" + "25" * 4 + "41", "/" + "x" * MAX_PATH,
    "/%" + "25" * 3_000,
]  # fmt: skip


@pytest.mark.parametrize("path", UNREADABLE)
def test_paths_that_hops_could_read_differently(path: str) -> None:
    with pytest.raises(InvalidRequest):
        purpose_of(path)


SPELLINGS: list[Callable[[str], str]] = [
    str.upper, str.title, quote, lambda path: quote(path, safe=""), lambda path: path.replace("/", "//"),
    lambda path: f"/v1{path}", lambda path: f"/{path}", lambda path: f"{path}/", lambda path: f"{path}%0a",
    lambda path: f"{path}\n", lambda path: f"{path}%20", lambda path: f"{path} ", lambda path: f"{path}%00",
    lambda path: f"{path}/.", lambda path: f"/x/..{path}", lambda path: f"/x/%2e%2e{path}",
    lambda path: f"/./{path[1:]}",
    lambda path: path.replace("/", "\\"), lambda path: path.replace("_", "%5f"), lambda path: path.replace("a", "%61"),
    lambda path: path.replace("%", "%25"), lambda path: f"{path}\x85", lambda path: path.replace("/", "/%20"),
]  # fmt: skip


@given(st.sampled_from(MANAGEMENT), st.lists(st.sampled_from(SPELLINGS), max_size=5))
def test_no_spelling_reaches_management(path: str, spellings: list[Callable[[str], str]]) -> None:
    for spell in spellings:
        path = spell(path)
    try:
        purpose = purpose_of(path)
    except InvalidRequest:
        return
    # What was encoded more often than the last server decodes isn't that route any more.
    assert purpose in ("management", "models")


@asynccontextmanager
async def engine() -> AsyncIterator[tuple[str, list[str]]]:
    """A Starlette application with vLLM's and SGLang's routes, as FastAPI has them; gives what was called."""
    called: list[str] = []

    async def manage(request: Request) -> Response:
        called.append(request.url.path)
        return PlainTextResponse("done")

    async def answer(request: Request) -> Response:
        return PlainTextResponse(f"{request.url.path}?{request.url.query}")

    managing = [Route(path, manage, methods=["POST", "GET"]) for path in MANAGEMENT]
    app = Starlette(routes=[*managing, Route("/{rest:path}", answer, methods=["POST", "GET"])])
    async with listening(app) as url:
        yield url, called


async def raw(client: httpx.AsyncClient, target: str, method: str = "POST") -> str:
    """Send a target as it is, which HTTP clients tidy up; returns the whole answer."""
    at = urlsplit(str(client.base_url))
    reader, writer = await asyncio.open_connection(at.hostname, at.port)
    head = "Host: localhost\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    writer.write(f"{method} {target} HTTP/1.1\r\n{head}".encode())
    answer = await reader.read()
    writer.close()
    return answer.decode()


async def test_a_starlette_engine_is_never_managed(tmp_path: Path) -> None:
    async with engine() as (url, called), calling(tmp_path, upstream=url) as client:
        for path in MANAGEMENT:
            for target in (path, f"{path}%0a", f"/v1/v1{path}", f"{path}%0A%20", f"/{path}", f"{path}%250a"):
                assert (await raw(client, target)).split()[1] in ("400", "403"), target
        assert called == []
        query = "q=" + "x" * 20_000
        assert (await raw(client, f"/tokenize?{query}")).endswith(f"/tokenize?{query}")
        assert " 200 " in await raw(client, "/next/release"), "nobody knows this engine"


WRITTEN = """{0} {0}/ /{0} //{0} {0}// /.{0} /./{1} /x/..{0} /x/../{1} /%2e{0} /%2e%2e{0} {0}/.. /x/%2e%2e{0}
/x/%252e%252e{0} /x/.%2e{0} /x%2f..{0} /..;{0} /x/..;{0} {0}/. {0}/%2e /%2f{1} %2f{1} /%252f{1} /%5c{1} /\\{1}
/x\\..\\{1} /x/..%5c{1} {0}%00 {0}%00.json {0}%0a {0}%0d%0a {0}%20 /%20{1} {0}%09 {0}%c2%85 {0}%e2%80%a8 {0}?x
{0}%3fx {0}#x {0}%23x {0};x=y {0}%3bx {0}.json /%ef%bc%8f{1} /%c0%af{1} /%e0%80%af{1} /v1{0} /V1{0} /v1/v1{0}
/v1/..{0} /v1/x/../..{0} /v1%2f{1} /v1/chat/completions/../../..{0} /v1/chat/completions/..%2f..%2f..{0}
/healthz/..{0} /burnish/..{0} /v1/feedback/../..{0} http://localhost{0} http://127.0.0.1:1{0} //localhost{0}
*{0} {0}%252f /%2525{1} {0}%250a {0}%25%30%61 /%u002f{1} {0}%ff /%00{1} /x%00/..{0} /\ufeff{1}"""
"""A route in targets: 0 as it is, 1 without its slash."""
LETTERS: list[Callable[[str], str]] = [
    str, str.upper, str.title, lambda path: "".join(f"%{ord(each):02x}" for each in path),
    lambda path: path.replace("a", "%61").replace("s", "%2573"), lambda path: path.replace("e", "\uff45"),
    lambda path: path.replace("s", "\u017f").replace("k", "\u212a"),
]  # fmt: skip


@pytest.mark.parametrize("route", ["/sleep", "/v1/load_lora_adapter", "/update_weights_from_disk"])
async def test_no_spelling_of_a_route_is_called(tmp_path: Path, route: str) -> None:
    async with engine() as (url, called), calling(tmp_path, upstream=url) as client:
        for spelt in (spell(route) for spell in LETTERS):
            for target in (each.format(spelt, spelt[1:]) for each in WRITTEN.split()):
                assert (await raw(client, target)).startswith("HTTP/1.1 "), target
        assert called == []
        assert " 200 " in await raw(client, "/v1/sleeper"), "the engine answers"


async def test_a_known_engine_gets_routes_for_inference_only(tmp_path: Path, weights: Path) -> None:
    async with world(tmp_path, Engine(), weights) as http:
        refused = await http.post("/next/release", json={})
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "management_route")
        assert (await http.get("/health")).status_code == 404, "the double has none, and is asked"
        assert (await http.get("/burnish/status")).status_code == 200
        assert (await http.get("/burnish/nothing")).status_code == 404
    async with world(tmp_path / "none", Engine(can_load=False), None) as http:
        refused = await http.post("/next/release", json={})
        assert refused.status_code == 403, "its versions can't be swapped, but it is known"


async def test_host_and_key_are_checked_before_the_path(tmp_path: Path) -> None:
    nested = "/" + "%" + "25" * 31_000
    async with engine() as (url, _), calling(tmp_path, upstream=url, api_key="secret") as client:
        assert " 401 " in (await raw(client, nested, "GET")).splitlines()[0]
    async with engine() as (url, _), calling(tmp_path / "open", upstream=url) as client:
        assert " 400 " in (await raw(client, nested, "GET")).splitlines()[0]


async def test_ollamas_own_routes_pass_if_the_owner_wants_that(tmp_path: Path) -> None:
    flags = {"allow_management": True, "admin_key": "root"}
    async with engine() as (url, called), calling(tmp_path, upstream=url, **flags) as client:
        for path in OLLAMA.split():
            assert (await client.post(path)).status_code == 403
            assert (await client.post(path, headers={"x-burnish-key": "root"})).status_code == 200
        assert (await client.post("/sleep", headers={"x-burnish-key": "root"})).status_code == 403
    assert called == OLLAMA.split()
