"""Reads the path of a request as the next hop could: is it inference, or does it manage the engine?

A server may decode a path again, ignore case and slashes, or match it before a newline (Starlette's ``$``). So all of
this is undone before the comparison, and what can be read in two ways is refused.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal
from urllib.parse import unquote

from burnish.proxy.http.errors import InvalidRequest

MAX_PATH = 8 * 1024
"""Characters. The query isn't part of it: agents send long ones."""
MAX_DECODINGS = 4
"""The listener's is the first of them."""

Purpose = Literal["inference", "models", "management", "other"]
"""models: Ollama's own routes that create, load and delete models."""

MANAGEMENT = (
    # vLLM, SGLang: adapters and weights
    "load_lora_adapter", "unload_lora_adapter", "update_weight", "init_weight", "start_weight", "finish_weight",
    "start_draft_weight", "send_weight", "destroy_weight", "get_weight", "weight_checker", "weights_checker",
    # memory, sleep, caches
    "wake_up", "release_kv_cache", "release_memory", "resume_memory", "reset_prefix_cache", "reset_mm_cache",
    "reset_encoder_cache", "flush_cache", "clear_hicache", "attach_hicache", "detach_hicache", "freeze_gc",
    # control and inspection
    "collective_rpc", "server_info", "get_server_info", "start_profile", "stop_profile", "abort_request",
    "scale_elastic_ep", "pause_generation", "continue_generation", "set_internal_state", "get_internal_state",
    "set_trace_level", "configure_logging", "slow_down", "open_session", "close_session", "generate_from_file",
    "start_expert_distribution", "stop_expert_distribution", "dump_expert_distribution",
    # llama.cpp
    "lora-adapters", "cors-proxy",
)  # fmt: skip
"""Beginnings of the names of routes that change an engine. Wherever a path has one, only burnish may call it."""
MANAGEMENT_WORDS = (
    "sleep", "pause", "resume", "hicache", "dumper", "slots", "props", "tools", "models/load", "models/unload",
    "models/download",
)  # fmt: skip
"""Words that mean the same only at the beginning of a path, or behind LM Studio's ``api/v1/``."""
MODEL_WORDS = ("api/create", "api/pull", "api/push", "api/blobs", "api/delete", "api/copy")

INFERENCE = (
    # OpenAI's, Anthropic's, Google's
    "chat", "completions", "responses", "messages", "models", "embeddings", "audio", "images", "videos", "realtime",
    "conversations", "files", "batches", "moderations",
    # vLLM, SGLang, llama.cpp, MLX
    "completion", "embedding", "rerank", "reranking", "score", "pooling", "classify", "encode", "generate",
    "inference/v1/generate", "invocations", "vertex_generate", "infill", "tokenize", "detokenize", "tokenizer_info",
    "apply-template", "separate_reasoning", "parse_function_call",
    # Ollama
    "api/chat", "api/generate", "api/embed", "api/embeddings", "api/tags", "api/ps", "api/show", "api/version",
    # What only looks
    "health", "health_generate", "ping", "version", "metrics", "load", "loads", "get_load", "model_info",
    "get_model_info", "docs", "redoc", "openapi.json",
)  # fmt: skip
"""Beginnings of the paths that a known engine gets, less the version (``/v1``)."""
COMPLETIONS = (
    "/chat/completions", "/completions", "/responses", "/messages", "/messages/count_tokens", "/embeddings",
    "/api/chat", "/api/generate", ":generatecontent", ":streamgeneratecontent", ":counttokens",
)  # fmt: skip
"""Ends of paths that mean inference under any prefix."""

PAGE_FILES = (".js", ".css", ".svg", ".png", ".ico", ".woff2", ".webmanifest", ".map")
"""Ends of what an engine's own page loads besides inference."""
PAGE_FACTS = ("/props",)
"""What llama-server's page must read before it shows anything. To change it is management."""

_UNREADABLE = re.compile("[\0-\x1f\x7f-\x9f\u2028\u2029\\\\]")
_VERSIONS = re.compile(r"\A(?:v\d\w*(?:/|\Z))+")


def _any_of(names: tuple[str, ...]) -> str:
    return "(?:" + "|".join(map(re.escape, names)) + ")"


_PURPOSES: tuple[tuple[Purpose, re.Pattern[str]], ...] = (
    ("management", re.compile(rf"(?:\A|.*/){_any_of(MANAGEMENT)}")),
    ("management", re.compile(rf"(?:api/(?:v\d\w*/)*)?{_any_of(MANAGEMENT_WORDS)}(?:[/_-]|\Z)")),
    ("models", re.compile(rf"{_any_of(MODEL_WORDS)}(?:/|\Z)")),
    ("inference", re.compile(rf"\Z|{_any_of(INFERENCE)}(?:/|\Z)|.*{_any_of(COMPLETIONS)}\Z")),
)


@lru_cache(maxsize=256)
def purpose_of(path: str) -> Purpose:
    """Return what a path is for, in any spelling. Raises InvalidRequest, which isn't cached."""
    names = (name.strip() for name in _decoded(path).lower().split("/"))
    plain = _VERSIONS.sub("", "/".join(name for name in names if name))
    return next((purpose for purpose, pattern in _PURPOSES if pattern.match(plain)), "other")


def _decoded(path: str) -> str:
    """Undo percent-encoding until nothing changes. Raises InvalidRequest for what hops could read differently."""
    if len(path) > MAX_PATH:
        raise InvalidRequest(
            f"the path has {len(path)} characters; at most {MAX_PATH} are allowed (the query doesn't count)"
        )
    original = path
    for _ in range(MAX_DECODINGS):
        decoded = unquote(path)
        if decoded == path:
            break
        path = decoded
    else:
        raise InvalidRequest(
            f"the path {original[:200]!r} is percent-encoded more than {MAX_DECODINGS} times"
        )
    if _UNREADABLE.search(path) or path != path.strip():
        raise InvalidRequest(
            f"the path {original[:200]!r} must not contain control characters or backslashes, nor begin or end with "
            "a space"
        )
    if any(part.strip() in (".", "..") for part in path.split("/")):
        raise InvalidRequest(f"the path {original[:200]!r} must not contain . or ..")
    return path
