"""Requests for token ids, and answers without them: before upstreams that are scripted to the byte."""

from __future__ import annotations

import asyncio
import gzip
from pathlib import Path
from typing import Any

import httpx
import openai
import orjson
import pytest

from burnish.system.apart import LARGE_BYTES
from tests.support.inprocess import behind, calling, logged
from tests.support.patience import within
from tests.support.program import call
from tests.support.token_ids import CHAT, Json, captured, chunks
from tests.support.upstream import Received, Script, Upstream, completion, events, reply, stream

CAPTURE: Json = {"capture": {"tokens": True}}
ASKED: Json = {"model": "mock", "messages": [{"role": "user", "content": "Hi"}]}
PROMPT = [1, 9690, 2]
CHUNK: Json = {"id": "chatcmpl-1", "object": "chat.completion.chunk"}
WHOLE: Json = {"prompt": PROMPT, "reply": [11, 12], "logprobs": [-0.5, -0.25], "missing": None}
"""What is captured of a whole answer."""
STREAMED: Json = WHOLE | {"reply": [11, 12, 13], "logprobs": [-0.5, -0.25, -1.5]}
BODY = b'{ "messages" :[{"role":"user","content":"Hi"}], "model":"mock" }'
both = pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])


def logprob(token: str, value: float) -> Json:
    return {"content": [{"token": token, "logprob": value, "bytes": [*token.encode()], "top_logprobs": []}]}


def chunk(delta: Json, ids: list[int] | None, value: float = -0.5, *, finish: str | None = None) -> Json:
    """An event of vLLM's, with what it has if ids were asked for; None: they weren't."""
    shown = logprob(str(delta.get("content")), value) if ids else None
    choice = {"index": 0, "delta": delta, "logprobs": shown, "finish_reason": finish, "token_ids": ids}
    return CHUNK | {"created": 1, "model": "mock", "choices": [choice]}


def vllm_events(*, asked: bool) -> list[bytes]:
    """A stream of vLLM's, of which a parser swallows the second token."""
    head = chunk({"role": "assistant", "content": ""}, None)
    del head["choices"][0]["token_ids"]
    shown = [head | {"prompt_token_ids": PROMPT if asked else None, "prompt_text": None}]
    shown.append(chunk({"content": "Hel"}, [11] if asked else None))
    shown += [chunk({}, [12], -0.25)] if asked else []
    shown.append(chunk({"content": "lo"}, [13] if asked else None, -1.5, finish="stop"))
    usage = {"prompt_tokens": 3, "completion_tokens": 3, "total_tokens": 6}
    shown.append(CHUNK | {"choices": [], "usage": usage})
    return [*(b"data: %b\n\n" % orjson.dumps(each) for each in shown), b"data: [DONE]\n\n"]


def vllm_whole(*, asked: bool) -> bytes:
    told = {"content": logprob("Hello", -0.5)["content"] + logprob("", -0.25)["content"]}
    logprobs, ids = (told, [11, 12]) if asked else (None, None)
    said = {"role": "assistant", "content": "Hello"}
    choice = {"index": 0, "message": said, "logprobs": logprobs, "finish_reason": "stop", "token_ids": ids}
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    whole = {"id": "chatcmpl-1", "object": "chat.completion", "choices": [choice], "usage": usage}
    return orjson.dumps(whole | {"prompt_token_ids": PROMPT if asked else None})


def engine(answer: Script | None = None, *, owner: str = "vllm") -> Script:
    """vLLM, as far as burnish looks: its list of models, and its answers with and without ids."""

    async def script(request: Received, writer: asyncio.StreamWriter) -> None:
        if request.target == "/api/version":
            return await reply(b"{}", status="404 Not Found")(request, writer)
        if request.target == "/v1/models":
            card = {"id": "mock", "object": "model", "owned_by": owner, "root": "mock"}
            return await reply(orjson.dumps({"object": "list", "data": [card]}))(request, writer)
        if request.target != CHAT:
            return await reply(b"{}", status="404 Not Found")(request, writer)
        if answer:
            return await answer(request, writer)
        asked = request.json()
        ids = asked.get("return_token_ids") is True
        made = stream(vllm_events(asked=ids)) if asked.get("stream") else reply(vllm_whole(asked=ids))
        return await made(request, writer)

    return script


def completions(server: Upstream) -> list[Received]:
    return [each for each in server.requests if each.target == CHAT]


async def ask(http: httpx.AsyncClient, **body: Any) -> httpx.Response:
    answer = await http.post(CHAT, json=ASKED | body)
    assert answer.status_code == 200, answer.text
    return answer


@both
async def test_the_client_of_vllm_sees_the_answer_without_ids(tmp_path: Path, streamed: bool) -> None:
    async with behind(tmp_path, engine(), **CAPTURE) as (http, server):
        answer = await ask(http, stream=streamed)
        tokens = await captured(http, answer)
        plain = vllm_events(asked=False) if streamed else [vllm_whole(asked=False)]
        if streamed:
            assert [*chunks(answer.text)] == [*chunks(b"".join(plain).decode())]
        else:
            assert answer.json() == orjson.loads(plain[0])
        (sent,) = completions(server)
    assert sent.json() == ASKED | {"stream": streamed, "return_token_ids": True, "logprobs": True}
    assert tokens == (STREAMED if streamed else WHOLE)


def deltas(stream: str) -> list[Json]:
    return [each for each in chunks(stream) if each["choices"] and each["choices"][0]["delta"]]


@both
async def test_a_client_gets_what_it_asked_for_itself(tmp_path: Path, streamed: bool) -> None:
    own = {"logprobs": True, "return_token_ids": True, "stream": streamed}
    async with behind(tmp_path, engine(), **CAPTURE) as (http, _):
        answer = await ask(http, **own)
        tokens = await captured(http, answer)
    whole = vllm_events(asked=True) if streamed else [vllm_whole(asked=True)]
    if streamed:
        assert deltas(answer.text) == deltas(b"".join(whole).decode())
    else:
        assert answer.json() == orjson.loads(whole[0])
    assert tokens["prompt"] == PROMPT


async def test_each_event_goes_on_before_the_next_one_is_there(tmp_path: Path) -> None:
    hold = asyncio.Event()
    *first, last = vllm_events(asked=True)
    split = [part for each in first for part in (each[:9], each[9:])]
    script = engine(stream([*split, last], hold=hold))
    async with (
        behind(tmp_path, script, **CAPTURE) as (http, _),
        http.stream("POST", CHAT, json=ASKED | {"stream": True}) as answer,
    ):
        seen = b""
        async for piece in answer.aiter_raw():
            seen += piece
            if b'"usage"' in seen:
                hold.set()
    assert seen.endswith(b"data: [DONE]\n\n")
    assert b'token_ids":[' not in seen


async def test_half_an_emoji_goes_on_as_it_came(tmp_path: Path) -> None:
    parts = vllm_events(asked=True)
    parts[1] = parts[1].replace(b'{"content":"Hel"}', b'{"content":"\\ud83d"}')
    async with behind(tmp_path, engine(stream(parts)), **CAPTURE) as (http, _):
        answer = await ask(http, stream=True)
        assert (await captured(http, answer))["reply"] == [11, 12, 13]
    assert r'{"content":"\ud83d"}' in answer.text


async def test_the_official_client_reads_a_captured_stream(tmp_path: Path) -> None:
    async with behind(tmp_path, engine(), **CAPTURE) as (http, _):
        client = openai.AsyncOpenAI(base_url=f"{http.base_url}/v1", api_key="-")
        made: Any = await client.chat.completions.create(**ASKED, stream=True)
        texts = [each.choices[0].delta.content or "" async for each in made if each.choices]
        await client.close()
    assert "".join(texts) == "Hello"


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "compressed"])
async def test_a_large_answer_is_read_apart(tmp_path: Path, packed: bool) -> None:
    told = orjson.loads(vllm_whole(asked=True))
    told["choices"][0]["message"]["content"] = "x" * 2 * LARGE_BYTES
    body, packing = orjson.dumps(told), "content-type: application/json\r\ncontent-encoding: gzip\r\n"
    answer = reply(gzip.compress(body), headers=packing) if packed else reply(body)
    async with behind(tmp_path, engine(answer), **CAPTURE) as (http, _):
        found = await ask(http)
        assert (await captured(http, found))["reply"] == [11, 12]
    assert found.json()["choices"][0]["message"] == told["choices"][0]["message"]
    assert found.json()["choices"][0]["token_ids"] is None


async def test_a_large_request_is_captured(tmp_path: Path) -> None:
    async with behind(tmp_path, engine(), **CAPTURE) as (http, server):
        found = await ask(http, messages=[{"role": "user", "content": "x" * 2 * LARGE_BYTES}])
        assert (await captured(http, found))["reply"] == [11, 12]
        assert completions(server)[0].json()["return_token_ids"] is True


async def test_answers_at_the_same_time_keep_their_own_tokens(tmp_path: Path) -> None:
    async with behind(tmp_path, engine(), **CAPTURE) as (http, _):
        answers = await asyncio.gather(*(ask(http, stream=bool(number % 2)) for number in range(8)))
        for number, answer in enumerate(answers):
            assert (await captured(http, answer))["reply"] == ([11, 12, 13] if number % 2 else [11, 12])


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/responses"])
@both
async def test_other_formats_are_asked_for_in_chat(tmp_path: Path, path: str, streamed: bool) -> None:
    body = {"model": "mock", "input": "Hi"} if "responses" in path else ASKED | {"max_tokens": 9}
    async with behind(tmp_path, engine(), **CAPTURE) as (http, server):
        answer = await http.post(path, json=body | {"stream": streamed})
        assert answer.status_code == 200, answer.text
        tokens = await captured(http, answer)
        assert "token_ids" not in answer.text
        assert len(completions(server)) == 1
        (record,) = await logged(http)
    assert record["reply"]["content"] == "Hello"
    assert tokens["prompt"] == PROMPT
    assert tokens["reply"] == ([11, 12, 13] if streamed else [11, 12])


async def test_a_stream_that_is_cut_keeps_the_tokens_that_came(tmp_path: Path) -> None:
    script = engine(stream(vllm_events(asked=True)[:3], cut=True))
    async with behind(tmp_path, script, **CAPTURE) as (http, _):
        with pytest.raises(httpx.RemoteProtocolError):
            await ask(http, stream=True)
        (record,) = await logged(http)
        shown = await http.get(f"/burnish/completions/{record['id']}", params={"tokens": "true"})
    assert record["outcome"] == "cut"
    assert shown.json()["tokens"] == WHOLE


async def test_an_answer_that_is_cut_says_that_it_has_none(tmp_path: Path) -> None:
    async def half(request: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 999\r\n\r\n{")
        await writer.drain()
        writer.transport.abort()

    async with behind(tmp_path, engine(half), **CAPTURE) as (http, _):
        assert (await http.post(CHAT, json=ASKED)).status_code == 502
        (record,) = await logged(http)
    assert record["tokens"] == {"prompt": 0, "reply": 0, "missing": "the answer didn't come to its end"}


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (reply(completion("Hello!")), "this vLLM gives no token ids"),
        (stream(events("Hello!")), "this vLLM gives no token ids"),
        (reply(b"[]"), "isn't an answer of chat"),
        (reply(b'{"error":{"message":"no"}}', status="429 Too Many Requests"), "the engine answered 429"),
    ],
    ids=["whole", "stream", "unreadable", "error"],
)
async def test_an_answer_without_ids_goes_on_and_the_log_says_why(tmp_path: Path, answer: Script, why: str):
    async with behind(tmp_path, engine(answer), **CAPTURE) as (http, _):
        found = await http.post(CHAT, json=ASKED)
        assert why in (await captured(http, found))["missing"]


def mlx(answer: Json, model: Path) -> Script:
    """mlx_lm.server, as far as burnish looks, with one answer."""

    async def script(request: Received, writer: asyncio.StreamWriter) -> None:
        if request.target == "/v1/models":
            return await reply(orjson.dumps({"object": "list", "data": [{"id": str(model)}]}))(
                request, writer
            )
        if request.target == "/v1/completions":
            refusal = reply(b'{"error": "adapter must be a string"}', status="400 Bad Request")
            return await refusal(request, writer)
        known = request.target == CHAT
        made = reply(orjson.dumps(answer)) if known else reply(b"{}", status="404 Not Found")
        return await made(request, writer)

    return script


PARTLY: Json = {"index": 0, "message": {"role": "assistant", "content": "On the nor"}}
FAILING: dict[str, tuple[Json, str | None]] = {
    "a choice's error": (
        {"choices": [{**PARTLY, "finish_reason": "error", "error": {"message": "out of memory"}}]}, "On the nor"
    ),
    "an error beside a choice": (
        {"choices": [{**PARTLY, "finish_reason": "stop"}], "error": {"message": "out of memory"}}, "On the nor"
    ),
    "nothing but an error": ({"error": {"message": "out of memory"}}, None),
}  # fmt: skip


@pytest.mark.parametrize("name", FAILING)
@both
async def test_an_error_in_an_answer_reaches_client_and_log(
    tmp_path: Path, name: str, streamed: bool
) -> None:
    answer, text = FAILING[name]
    async with behind(tmp_path, mlx(answer, tmp_path), **CAPTURE) as (http, _):
        found = await ask(http, stream=streamed)
        (record,) = await logged(http)
    assert "out of memory" in found.text
    assert (record["outcome"], (record["reply"] or {}).get("content")) == ("cut", text)
    assert "out of memory" in record["error"]


async def test_a_stream_that_is_made_of_an_answer_says_how_that_ended(tmp_path: Path) -> None:
    choice = {**PARTLY, "finish_reason": "stop", "stop_reason": "Obs:"}
    async with behind(tmp_path, mlx({"choices": [choice]}, tmp_path), **CAPTURE) as (http, _):
        found = await ask(http, stream=True, stop=["Obs:"])
        (record,) = await logged(http)
    assert [*chunks(found.text)][-1]["choices"][0]["stop_reason"] == "Obs:"
    assert record["finish_reason"] == "stop_sequence"


@both
async def test_nothing_is_changed_for_an_upstream_that_gives_no_ids(tmp_path: Path, streamed: bool) -> None:
    body = BODY[:-1] + b', "stream":true}' if streamed else BODY
    answer = stream(events("Hello!")) if streamed else reply(completion())
    async with behind(tmp_path, engine(answer, owner="somebody"), **CAPTURE) as (http, server):
        found = await http.post(CHAT, content=body, headers={"content-type": "application/json"})
        assert found.content == (b"".join(events("Hello!")) if streamed else completion())
        tokens = await captured(http, found)
        (sent,) = completions(server)
    assert sent.body == body
    assert tokens["missing"] == "this upstream gives no token ids; llama.cpp, vLLM and MLX do"


async def test_without_capture_a_request_reaches_the_engine_as_it_came(tmp_path: Path) -> None:
    async with behind(tmp_path, engine()) as (http, server):
        found = await http.post(CHAT, content=BODY, headers={"content-type": "application/json"})
        assert await captured(http, found) is None
        assert [each.target for each in server.requests] == [CHAT], "nobody asked which engine it is"
    assert server.requests[0].body == BODY


@pytest.mark.parametrize("listed", [reply(b"{}", status="401 Unauthorized"), reply(b'{"version":1}')])
async def test_an_engine_that_cannot_be_told_is_asked_nothing_more(tmp_path: Path, listed: Script) -> None:
    async def shy(request: Received, writer: asyncio.StreamWriter) -> None:
        await (reply(completion()) if request.target == CHAT else listed)(request, writer)

    async with behind(tmp_path, shy, **CAPTURE) as (http, server):
        assert "can't tell which engine" in (await captured(http, await ask(http)))["missing"]
        assert completions(server)[0].json() == ASKED


async def test_several_answers_at_once_are_not_captured(tmp_path: Path) -> None:
    async with behind(tmp_path, engine(), **CAPTURE) as (http, server):
        found = await ask(http, n=2)
        assert "several answers" in (await captured(http, found))["missing"]
        assert completions(server)[0].json() == ASKED | {"n": 2}


async def test_burnish_show_counts_tokens_or_says_why_there_are_none(tmp_path: Path) -> None:
    async with behind(tmp_path, engine(), **CAPTURE) as (http, _):
        for body, words in (({}, "3 of the prompt + 2 of the reply"), ({"n": 2}, "none: several answers")):
            name = (await ask(http, **body)).headers["x-burnish-completion-id"]
            done = await asyncio.to_thread(call, "show", name, url=str(http.base_url))
            assert words in done.stdout, done


async def test_the_query_of_a_completion_is_checked(tmp_path: Path) -> None:
    async with behind(tmp_path, engine(), **CAPTURE) as (http, _):
        name = (await ask(http)).headers["x-burnish-completion-id"]
        counts = await http.get(f"/burnish/completions/{name}")
        assert counts.json()["tokens"] == {"prompt": 3, "reply": 2, "missing": None}
        wrong = await http.get(f"/burnish/completions/{name}", params={"tokens": "maybe"})
        assert (wrong.status_code, wrong.json()["error"]["param"]) == (422, "tokens")


async def test_tokens_survive_a_restart_and_go_with_their_user(tmp_path: Path) -> None:
    async with behind(tmp_path, engine(), **CAPTURE) as (http, server):
        found = await ask(http)
        async with asyncio.timeout(within(30)):
            await captured(http, found)
        url = server.url
    async with calling(tmp_path, upstream=url) as http:
        assert (await captured(http, found))["prompt"] == PROMPT
        assert (await http.delete("/burnish/users/local")).json()["erased"] == 1
        gone = await http.get(f"/burnish/completions/{found.headers['x-burnish-completion-id']}")
    assert gone.status_code == 404
