"""Does the log grow with what is said, or with how often clients resend it?

``python -m bench.log_growth [--turns 200]``: one conversation whose client resends everything each turn, with a
large array of tools, a system prompt and a call of a tool in every fourth turn, through ``Log.capture``.
Exits 1 when the database (with its write-ahead log) exceeds twice the distinct messages plus a constant a turn.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import orjson

from burnish.proxy.ids import completion_id
from burnish.proxy.log import Log
from burnish.proxy.records import Answerer, Completion, CompletionEnd, RequestFacts, Wire

LIMIT_FACTOR = 2
LIMIT_PER_COMPLETION_BYTES = 1024
"""The completion's own row, its nodes and the indexes: about a dozen ids, names, times and counts."""

TOOLS = 24
VOCABULARY = (
    "file function returns value error test request answer model branch number line change string list thread "
    "because however should which module without between second parse"
)
WORDS = VOCABULARY.split()

Message = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    sys.exit(asyncio.run(run(arguments.turns, arguments.seed)))


async def run(turns: int, seed: int) -> int:
    """Log a conversation and weigh it; returns the exit code."""
    requests, replies = conversation(turns, random.Random(seed))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.sqlite3"
        log = Log.open(path)
        started = time.perf_counter()
        for request, reply in zip(requests, replies, strict=True):
            log.capture(exchange(request, reply))
        counts = await log.counts()
        seconds = time.perf_counter() - started
        log.close()
        size = sum(each.stat().st_size for each in path.parent.iterdir())
    completions = len(requests)
    assert counts["completions"] == completions
    assert counts["conversations"] == 1
    distinct = distinct_bytes(requests, replies)
    limit = LIMIT_FACTOR * distinct + LIMIT_PER_COMPLETION_BYTES * completions
    resent = sum(map(len, requests)) + sum(len(orjson.dumps(reply)) for reply in replies)
    print(f"turns                      {turns:>12,}  ({completions:,} completions)")
    print(f"distinct messages + tools  {distinct:>12,} bytes")
    print(f"log, closed                {size:>12,} bytes  = {size / distinct:.2f} x distinct")
    print(f"  over the distinct ones   {(size - distinct) / completions:>12,.0f} bytes a completion")
    constant = f"{LIMIT_FACTOR} x distinct + {LIMIT_PER_COMPLETION_BYTES} a completion"
    print(f"limit                      {limit:>12,} bytes  = {constant}")
    print(
        f"all requests, as resent    {resent:>12,} bytes  = {resent / distinct:.1f} x distinct (quadratic storage)"
    )
    print(f"writer                     {1000 * seconds / completions:>12.2f} ms a completion")
    print("within the limit" if size <= limit else "LIMIT BROKEN")
    return 0 if size <= limit else 1


def conversation(turns: int, chance: random.Random) -> tuple[list[bytes], list[Message]]:
    """Return the bodies of all requests of an agent's conversation, and the replies to them."""
    tools = [tool(number, chance) for number in range(TOOLS)]
    history: list[Message] = [{"role": "system", "content": prose(chance, 800)}]
    requests: list[bytes] = []
    replies: list[Message] = []

    def complete(reply: Message) -> None:
        body = {"model": "smollm2", "messages": history, "tools": tools, "temperature": 0.7, "stream": False}
        requests.append(orjson.dumps(body))
        replies.append(reply)
        history.append(reply)

    for turn in range(turns):
        history.append({"role": "user", "content": prose(chance, 60)})
        if turn % 4 == 0:
            arguments = orjson.dumps({"path": prose(chance, 4)}).decode()
            call = {
                "id": f"call_{turn}",
                "type": "function",
                "function": {"name": "tool_1", "arguments": arguments},
            }
            complete({"role": "assistant", "content": None, "tool_calls": [call]})
            history.append({"role": "tool", "tool_call_id": call["id"], "content": prose(chance, 200)})
        complete({"role": "assistant", "content": prose(chance, 120)})
    return requests, replies


def tool(number: int, chance: random.Random) -> dict[str, Any]:
    properties = {
        name: {"type": "string", "description": prose(chance, 20)} for name in ("path", "pattern", "mode")
    }
    parameters = {"type": "object", "properties": properties, "required": ["path"]}
    function = {"name": f"tool_{number}", "description": prose(chance, 120), "parameters": parameters}
    return {"type": "function", "function": function}


def prose(chance: random.Random, words: int) -> str:
    """Return some words, never the same twice."""
    return " ".join(chance.choices(WORDS, k=words))


def exchange(request: bytes, reply: Message) -> Completion:
    """Return one request and its answer, as the relay hands them to the log."""
    name = completion_id()
    finish = "tool_calls" if reply.get("tool_calls") else "stop"
    body = {
        "id": f"chatcmpl-{name}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": "smollm2@v3",
        "choices": [{"index": 0, "message": reply, "finish_reason": finish}],
        "usage": {
            "prompt_tokens": len(request) // 4,
            "completion_tokens": 150,
            "total_tokens": len(request) // 4 + 150,
        },
    }
    session = "a0b1c2d3-e4f5-6789-abcd-ef0123456789"
    return Completion(
        name,
        RequestFacts(time.time(), "chat", model_asked="smollm2", caller="local", session=session),
        Answerer(
            "http://127.0.0.1:8080/v1", "smollm2@v3", adapter_version=3, base_digest="sha256:" + "0" * 64
        ),
        CompletionEnd("complete", total_s=2.5, status=200, first_byte_s=0.2),
        wire=Wire(request, (orjson.dumps(body),), "application/json"),
    )


def distinct_bytes(requests: list[bytes], replies: list[Message]) -> int:
    """Return the size of everything that was said, each thing counted once."""
    last = orjson.loads(requests[-1])
    said = {orjson.dumps(message) for message in [*last["messages"], *replies]}
    return sum(map(len, said)) + len(orjson.dumps(last["tools"]))


if __name__ == "__main__":
    main()
