"""What tests of captured tokens share: what burnish kept, and what the engine itself holds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx

from tests.support import chat_wire

Json = dict[str, Any]

CHAT = "/v1/chat/completions"
WEATHER: Json = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


def asked_before(city: str) -> list[Json]:
    """A question, and a call of the tool as its answer."""
    call = chat_wire.called("weather", {"city": city}, city)
    return [
        {"role": "user", "content": f"Weather in {city}?"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
    ]


CALLING: Json = {
    "messages": [
        *(message for city in ("Rome", "Bonn", "Berlin") for message in asked_before(city)),
        {"role": "user", "content": "Weather in Paris?"},
    ],
    "tools": [WEATHER],
}
"""Even the small model calls the tool here, if the template shows it how."""


async def captured(http: httpx.AsyncClient, answer: httpx.Response) -> Any:
    """The tokens that burnish kept of an answer, None if it was to keep none."""
    name = answer.headers["x-burnish-completion-id"]
    shown = await http.get(f"/burnish/completions/{name}", params={"tokens": "true"})
    return shown.json()["tokens"]


async def held(engine: httpx.AsyncClient, tokens: Json) -> int:
    """How many of these tokens are in the cache of a llama.cpp with one slot, from the first one on.

    The last one never is, because nothing was made from it yet.
    """
    body = {"prompt": [*tokens["prompt"], *tokens["reply"], 0], "n_predict": 1, "cache_prompt": True}
    return int((await engine.post("/completion", json=body)).json()["timings"]["cache_n"])


def chunks(text: str) -> Iterator[Json]:
    for line in text.splitlines():
        if line.startswith("data: {"):
            yield json.loads(line.removeprefix("data: "))


def told(answer: httpx.Response) -> Json:
    """What an answer of chat says, streamed or not, without what differs from one to the next."""
    if "event-stream" not in answer.headers["content-type"]:
        (choice,) = answer.json()["choices"]
        return {
            "message": without_ids({name: each for name, each in choice["message"].items() if each}),
            "finish_reason": choice["finish_reason"],
            "logprobs": choice.get("logprobs"),
            "usage": usage_of(answer.json()),
            "members": {*answer.json()} | {*choice},
        }
    # llama.cpp leaves the role out if the first token is a part of a character.
    message: Json = {"role": "assistant"}
    calls: list[Json] = []
    found: Json = {
        "message": message,
        "finish_reason": None,
        "logprobs": None,
        "usage": None,
        "members": set(),
    }
    for each in chunks(answer.text):
        found["members"] |= {*each}
        found["usage"] = usage_of(each) or found["usage"]
        for choice in each["choices"]:
            found["members"] |= {*choice}
            found["finish_reason"] = choice["finish_reason"] or found["finish_reason"]
            if choice.get("logprobs"):
                found["logprobs"] = found["logprobs"] or {"content": []}
                found["logprobs"]["content"] += choice["logprobs"]["content"]
            for name, value in choice["delta"].items():
                if name == "tool_calls":
                    for call in value:
                        if call["index"] == len(calls):
                            calls.append({"type": "function", "function": {"name": "", "arguments": ""}})
                        for member, text in call["function"].items():
                            calls[call["index"]]["function"][member] += text
                elif name == "role":
                    message[name] = value
                elif value:
                    message[name] = message.get(name, "") + value
    message |= {"tool_calls": calls} if calls else {}
    assert answer.text.endswith("data: [DONE]\n\n")
    return found


def without_ids(message: Json) -> Json:
    calls = [
        {name: each for name, each in call.items() if name != "id"} for call in message.get("tool_calls", ())
    ]
    return message | ({"tool_calls": calls} if calls else {})


def usage_of(answer: Json) -> Json | None:
    """The counts of an answer, less how many of them the engine had at hand."""
    usage = answer.get("usage")
    return {name: usage[name] for name in ("prompt_tokens", "completion_tokens")} if usage else None
