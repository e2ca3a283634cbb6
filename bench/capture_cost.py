"""What does it cost the proxy to capture token ids? CPU time of burnish for each token, with capture and without.

``python -m bench.capture_cost [--answers 100]``: a scripted engine in a process of its own streams answers of 400
tokens to a prompt of 500, as vLLM does, or gives them whole, as llama.cpp does. Two burnishs stand before it, and
requests alternate between them. CPU time is that of all their threads, the log's writer included. Exits 1 when a token
costs more than the limit.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import random
import sqlite3
import sys
import tempfile
from contextlib import ExitStack, closing
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import httpx
import orjson
import psutil

from tests.support.burnish import Burnish, running
from tests.support.upstream import Received, Script, reply, stream, upstream

LIMIT_US = 60
TOKENS, PROMPT = 400, 500
VOCABULARY = 50_000
WARM_UP = 3
TOGETHER = 10
"""Answers in a row: the CPU time of a process comes in steps of 10 ms."""
CHAT = "/v1/chat/completions"
Json = dict[str, Any]


def _tokens() -> tuple[list[int], list[int], list[float]]:
    chance = random.Random(0)
    # Frequent words have small numbers.
    ids = [int(VOCABULARY * chance.random() ** 3) for _ in range(PROMPT + TOKENS)]
    return ids[:PROMPT], ids[PROMPT:], [-chance.expovariate(1.5) for _ in range(TOKENS)]


IDS, REPLY, LOGPROBS = _tokens()
WORDS = [f" w{each % 1000}" for each in REPLY]
BODY: Json = {"model": "mock", "stream": True, "messages": [{"role": "user", "content": "word " * PROMPT}]}
HEAD: Json = {"id": "chatcmpl-1", "created": 1, "model": "mock"}
USAGE = {"prompt_tokens": PROMPT, "completion_tokens": TOKENS, "total_tokens": PROMPT + TOKENS}


def _logprob(place: int) -> Json:
    told = {"token": WORDS[place], "logprob": LOGPROBS[place], "bytes": [*WORDS[place].encode()]}
    return told | {"id": REPLY[place], "top_logprobs": [told]}


def _chunk(delta: Json, finish: str | None = None, **more: Any) -> Json:
    choice = {"index": 0, "delta": delta, "finish_reason": finish, **more}
    return {**HEAD, "object": "chat.completion.chunk", "choices": [choice]}


def _events(*, ids: bool) -> list[bytes]:
    told = [_chunk({"role": "assistant", "content": ""}) | {"prompt_token_ids": IDS if ids else None}]
    for place, word in enumerate(WORDS):
        more: Json = {"logprobs": None, "token_ids": None}
        if ids:
            more = {"logprobs": {"content": [_logprob(place)]}, "token_ids": [REPLY[place]]}
        told.append(_chunk({"content": word}, **more))
    told.append(_chunk({}, "stop"))
    return [*(b"data: %b\n\n" % orjson.dumps(each) for each in told), b"data: [DONE]\n\n"]


def _whole() -> bytes:
    told = {"content": [_logprob(place) for place in range(TOKENS)]}
    choice = {"index": 0, "message": {"role": "assistant", "content": "".join(WORDS)}, "logprobs": told}
    verbose = {"tokens": REPLY, "prompt": "word " * PROMPT}
    choice["finish_reason"] = "stop"
    return orjson.dumps({**HEAD, "choices": [choice], "usage": USAGE, "__verbose": verbose})


def _script(owner: str) -> Script:
    plain, with_ids, whole = _events(ids=False), _events(ids=True), _whole()
    fixed = {
        "/v1/models": {"object": "list", "data": [{"id": "mock", "owned_by": owner}]},
        "/apply-template": {"prompt": "word " * PROMPT},
        "/tokenize": {"tokens": IDS},
    }

    async def script(request: Received, writer: asyncio.StreamWriter) -> None:
        if request.target in fixed:
            return await reply(orjson.dumps(fixed[request.target]))(request, writer)
        if request.target != CHAT:
            return await reply(b"{}", status="404 Not Found")(request, writer)
        asked = request.json()
        if asked.get("return_token_ids"):
            return await stream(with_ids)(request, writer)
        return await (reply(whole) if asked.get("return_tokens") else stream(plain))(request, writer)

    return script


def _serve(ready: Connection, owner: str) -> None:
    async def forever() -> None:
        async with upstream(_script(owner)) as server:
            ready.send(server.url)
            await asyncio.Event().wait()

    asyncio.run(forever())


def _cpu_us(burnish: Burnish) -> float:
    used = psutil.Process(burnish.pid).cpu_times()
    return (used.user + used.system) * 1e6


def _spent_us(burnish: Burnish, answers: int) -> float:
    """Ask for some answers, and return what they cost."""
    with httpx.Client(base_url=burnish.url, trust_env=False, timeout=60) as http:
        before = _cpu_us(burnish)
        for _ in range(answers):
            answer = http.post(CHAT, json=BODY)
            assert answer.text.endswith("data: [DONE]\n\n"), answer.text
        http.get("/burnish/completions", params={"limit": 1})  # waits until they are stored
        return _cpu_us(burnish) - before


def _bytes_each(data_dir: Path) -> tuple[float, float]:
    """Return the bytes of an id and of a log-probability in the log."""
    with closing(sqlite3.connect(data_dir / "burnish.db")) as connection:
        prompt, reply_, logprobs = connection.execute(
            "SELECT length(prompt), length(reply), length(logprobs) FROM token_capture WHERE prompt IS NOT NULL"
        ).fetchone()
    return (prompt + reply_) / (PROMPT + TOKENS), logprobs / TOKENS


def measure(owner: str, answers: int, folder: Path) -> float:
    """Print the costs before one kind of engine; return what capture adds to a token, in microseconds."""
    ours, theirs = multiprocessing.Pipe()
    server = multiprocessing.Process(target=_serve, args=(theirs, owner), daemon=True)
    server.start()
    before = ("--upstream", ours.recv(), "--no-train")
    costs = {False: 0.0, True: 0.0}
    with ExitStack() as stack:
        sides = {
            captures: stack.enter_context(
                running(
                    folder / f"{owner}-{captures}",
                    *before,
                    env={"BURNISH_CAPTURE__TOKENS": json.dumps(captures)},
                )
            )
            for captures in costs
        }
        for burnish in sides.values():
            _spent_us(burnish, WARM_UP)
        for _ in range(max(answers // TOGETHER, 1)):
            for captures, burnish in sides.items():
                costs[captures] += _spent_us(burnish, TOGETHER)
    server.terminate()
    tokens = max(answers // TOGETHER, 1) * TOGETHER * TOKENS
    off, on = costs[False] / tokens, costs[True] / tokens
    an_id, a_logprob = _bytes_each(folder / f"{owner}-True")
    print(
        f"{owner:<9} off {off:5.1f} µs a token, on {on:5.1f} µs: {on - off:+5.1f} µs, {on / off:.2f} times; "
        f"{an_id:.2f} bytes an id, {a_logprob:.2f} a log-probability",
        flush=True,
    )
    return on - off


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--answers", type=int, default=100)
    answers = parser.parse_args().answers
    with tempfile.TemporaryDirectory() as folder:
        added = {owner: measure(owner, answers, Path(folder)) for owner in ("vllm", "llamacpp")}
    return 0 if max(added.values()) <= LIMIT_US else 1


if __name__ == "__main__":
    sys.exit(main())
