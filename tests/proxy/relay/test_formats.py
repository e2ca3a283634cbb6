"""What holds in every format, before an upstream that speaks it and before one that only knows chat."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import orjson
import pytest

from tests.support import wires
from tests.support.chat_wire import called
from tests.support.sdks import (
    FORMATS,
    FULL,
    OUT_OF_MEMORY,
    RAIN_IS,
    RAIN_STREAM,
    TOOL,
    TOOLS,
    WEATHER,
    Answer,
    Failed,
    Json,
    status_code,
    user,
    world,
)
from tests.support.upstream import reply, stream

SYSTEM: dict[str, Any] = {
    "messages": {"system": "Be brief."},
    "responses": {"instructions": "Be brief."},
    "ollama": {},
    "google": {"config": {**TOOLS["google"]["config"], "system_instruction": "Be brief."}},
}
LIMITED: dict[str, Any] = {
    "messages": {"max_tokens": 4},
    "responses": {"max_output_tokens": 4},
    "ollama": {"options": {"num_predict": 4}},
    "google": {"config": {"max_output_tokens": 4}},
}
ENDED = "complete message|not completed|Connection error|payload is not completed|peer closed"
KINDS: dict[int, dict[str, str]] = {
    400: {"messages": "invalid_request_error", "google": "INVALID_ARGUMENT"},
    404: {"messages": "not_found_error", "google": "NOT_FOUND"},
    429: {"messages": "rate_limit_error", "google": "RESOURCE_EXHAUSTED"},
    502: {"messages": "api_error", "google": "UNAVAILABLE"},
}
"""What two formats call an error with this status."""

both = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
every_format = pytest.mark.parametrize("name", FORMATS)
every_upstream = pytest.mark.parametrize("native", [True, False], ids=["native", "chat only"])


@both
@every_format
@every_upstream
async def test_client_and_log_have_the_answer(tmp_path: Path, native: bool, name: str, stream: bool) -> None:
    async with world(tmp_path, FULL, native=native) as here:
        got = await here.ask(name, WEATHER, stream, **TOOLS[name] | SYSTEM[name])
        (record,) = await here.logged()
        (asked,) = here.asked()
    assert (got.thoughts, got.text) == ("They want rain.", "Let me look – 😀.")
    assert got.calls == [("look", {"city": "Köln"}), ("look", {"city": "Bonn"})]
    assert (got.finished, got.counts) == (FORMATS[name].finished[0], (17, 7))
    if not native:
        assert (asked["model"], asked["tools"][0]["function"]["parameters"]) == ("mock", TOOL)
    assert (record["surface"], record["outcome"], record["finish_reason"], record["model_asked"]) == (
        FORMATS[name].surface, "complete", "tool_calls", "mock",
    )  # fmt: skip
    assert (record["prompt_tokens"], record["completion_tokens"]) == (17, 7)
    assert record["params"]["tools"][0]["function"]["name"] == "look"
    system = [] if name == "ollama" else [{"role": "system", "content": "Be brief."}]
    assert record["messages"] == [*system, *WEATHER]
    unknown = {"id"} if name == "ollama" else set()
    calls = [{key: each[key] for key in each.keys() - unknown} for each in FULL["tool_calls"]]
    assert record["reply"] == {"role": "assistant", **FULL, "tool_calls": calls}
    named = getattr(got.raw, "response_id" if name == "google" else "id", None)  # Ollama names none
    assert record["response_id"] == named


def results(name: str, got: Answer) -> list[Any]:
    if not got.calls:
        return []
    if name == "messages":
        uses = [block for block in got.raw.content if block.type == "tool_use"]
        return [user([{"type": "tool_result", "tool_use_id": use.id, "content": "wet"} for use in uses])]
    if name == "responses":
        return [{"type": "function_call_output", "call_id": "call_a", "output": "wet"}]
    return [{"role": "tool", "tool_name": "look", "content": "wet"}]


@both
@pytest.mark.parametrize("name", ["messages", "responses", "ollama"])
@every_upstream
async def test_a_conversation_with_tools_is_one(tmp_path: Path, native: bool, name: str, stream: bool):
    look = called("look", {"city": "Köln"}, "call_a")
    call = {"reasoning_content": "Hm.", "content": "Let me look.", "tool_calls": [look]}
    history: list[Any] = [user("Weather in Köln?")]
    async with world(tmp_path, call, {"content": "Rain."}, {"content": "Bye."}, native=native) as here:
        for said in ("", "/rl good", "And now?", ""):
            got = await here.ask(name, history, stream, **TOOLS[name])
            history += [*got.entries, *(results(name, got) or [user(said)])]
            if said == "And now?":
                assert got.text.startswith("burnish: rated good – “Rain.”")
                assert got.finished in ("end_turn", "completed", "stop")
        records = await here.logged()
        asked = here.asked()
    assert len({record["conversation_id"] for record in records}) == 1
    assert [record["rating"] for record in records] == [1.0, 1.0, None]
    assert (len(asked), "/rl" in str(asked)) == (3, False)
    # The last history holds each reply just as it was logged.
    replies = [each for each in records[2]["messages"] if each["role"] == "assistant"]
    assert replies == [record["reply"] for record in records[:2]]
    if not native:
        made = look | ({"id": "call00000"} if name == "ollama" else {})
        tool = {"role": "tool", "tool_call_id": made["id"], "content": "wet"}
        assert asked[2]["messages"] == [
            user("Weather in Köln?"),
            {"role": "assistant", **call, "tool_calls": [made]},
            tool | ({"name": "look"} if name == "ollama" else {}),
            {"role": "assistant", "content": "Rain."},
            user("And now?"),
        ]


@both
@every_format
async def test_default_is_the_upstreams_own_model(tmp_path: Path, name: str, stream: bool) -> None:
    theirs = "smollm2@v3 ü"
    async with world(tmp_path, RAIN_IS, native=True, model=theirs) as here:
        await here.ask(name, WEATHER, stream, model="default")
        (record,) = await here.logged()
        (request,) = here.upstream.requests
    named = request.json().get("model") or unquote(request.target.rpartition("/")[2]).rpartition(":")[0]
    assert (named, record["model_asked"], record["model_served"]) == (theirs, "default", theirs)


def kind_of(name: str, error: Any) -> str | None:
    return error.status if name == "google" else error.body["error"]["type"] if name == "messages" else None


@both
@every_format
async def test_a_missing_upstream_is_the_clients_own_error(tmp_path: Path, name: str, stream: bool) -> None:
    async with world(tmp_path, upstream="http://127.0.0.1:9") as here:
        with pytest.raises(FORMATS[name].refused, match="Is it running") as caught:
            await here.ask(name, WEATHER, stream)
        (record,) = await here.logged()
    assert record["outcome"] == "failed"
    assert (status_code(caught.value), kind_of(name, caught.value)) == (502, KINDS[502].get(name))


def error_of(name: str, status: int) -> Json:
    if name == "ollama":
        return {"error": "no model mock"}
    said: Json = {"message": "no model mock", "type": "x", "code": "y"}
    if name == "google":
        said |= {"code": status, "status": KINDS[status][name]}
    elif name == "messages":
        said |= {"type": KINDS[status][name]}
    return {"type": "error", "error": said}


@both
@every_format
@every_upstream
@pytest.mark.parametrize("status", [400, 404, 429])
async def test_an_error_of_the_upstream_is_the_clients_own(
    tmp_path: Path, native: bool, name: str, stream: bool, status: int
) -> None:
    error = orjson.dumps(error_of(name if native else "chat", status))
    head = "content-type: application/json\r\nretry-after: 7\r\n"
    async with world(tmp_path, reply(error, status=f"{status} No", headers=head), native=native) as here:
        with pytest.raises(FORMATS[name].refused, match="no model mock") as caught:
            await here.ask(name, WEATHER, stream)
        (record,) = await here.logged()
    given: Any = caught.value
    assert status_code(given) == status == record["status"]
    assert kind_of(name, given) == KINDS[status].get(name)
    assert "no model mock" in record["error"]
    if name == "responses":
        assert given.code == "y"
    if name == "ollama":
        assert given.error == "no model mock"
    else:
        assert given.response.headers["retry-after"] == "7"


@every_format
async def test_an_error_in_the_middle_of_a_stream_is_reported(tmp_path: Path, name: str) -> None:
    broken = stream([*RAIN_STREAM[:2], OUT_OF_MEMORY, b"data: [DONE]\n\n"])
    async with world(tmp_path, broken) as here:
        with pytest.raises((FORMATS[name].refused, Failed), match="out of memory"):
            await here.ask(name, WEATHER, True)
        (record,) = await here.logged()
    assert "out of memory" in record["error"]
    assert record["reply"]["content"] == "Rain "


@every_format
@every_upstream
@pytest.mark.parametrize("cut", [True, False], ids=["cut", "no end"])
async def test_a_short_stream_is_logged_as_cut(tmp_path: Path, native: bool, name: str, cut: bool) -> None:
    form = wires.format_at(FORMATS[name].path) if native else wires.CHAT
    parts = wires.write(form, RAIN_IS)[1]
    half = parts[: 1 + next(place for place, part in enumerate(parts) if b"Rain " in part)]
    script = stream(half, cut=cut, content_type=wires.content_type(form))
    async with world(tmp_path, script, native=native) as here:
        # Some clients do not notice that their own format's stream has no end.
        with suppress(Exception) if native and not cut else pytest.raises(Exception, match=ENDED):
            await here.ask(name, WEATHER, True)
        (record,) = await here.logged()
    assert (record["outcome"], record["reply"]["content"]) == ("cut", "Rain ")


@both
@every_format
@every_upstream
async def test_an_answer_too_long_says_so(tmp_path: Path, native: bool, name: str, stream: bool) -> None:
    said = {"content": "Rain and", "finish_reason": "length"}
    async with world(tmp_path, said, native=native) as here:
        assert (await here.ask(name, WEATHER, stream)).finished == FORMATS[name].finished[1]
        (record,) = await here.logged()
    assert record["finish_reason"] == "length"


STORY: list[Json] = [{"role": "user", "content": "Tell me a long story about a lighthouse and its keeper."}]


@both
async def test_the_embedded_engine_answers(tmp_path: Path, stream: bool) -> None:
    async with world(tmp_path, upstream=None) as here:
        for name in FORMATS:
            got = await here.ask(name, STORY, stream, **{**LIMITED[name], "model": "default"})
            record = (await here.logged())[-1]
            assert got.text == record["reply"]["content"] != ""
            assert (record["surface"], record["model_served"]) == (FORMATS[name].surface, "smollm2")
            assert got.counts == (record["prompt_tokens"], record["completion_tokens"])
            assert got.counts[1] == 4
            assert (got.finished, record["finish_reason"]) == (FORMATS[name].finished[1], "length")
            assert record["adapter_version"] == 0
        count = await here.anthropic.messages.count_tokens(model="default", messages=WEATHER)
        assert count.input_tokens > 3
