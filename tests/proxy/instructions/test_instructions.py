"""Instructions on the way of a request: real bytes over real sockets, from the feedback to the engine and the log."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from burnish.proxy.instructions.instructions import HEAD, PAUSE_S, LearntFeedback, addition, states
from burnish.proxy.log.instructions import MAX_INSTRUCTIONS
from burnish.proxy.records import Instruction
from tests.learner.test_engine_faults import registered
from tests.learner.test_foreign_engine import world as foreign_engine
from tests.proxy.log.exchanges import locked
from tests.proxy.log.test_place import until_trouble
from tests.support.inprocess import behind
from tests.support.patience import within
from tests.support.upstream import Received, Script, Upstream, completion, events, reply, stream
from tests.support.vllm_double import Engine

PATH = "/v1/chat/completions"
QUESTION = [{"role": "user", "content": "What is tea?"}]


@dataclass
class World:
    http: httpx.AsyncClient
    engine: Upstream

    async def ask(self, messages: list[dict[str, Any]] = QUESTION, caller: str = "local") -> httpx.Response:
        body = {"model": "mock", "messages": messages}
        return await self.http.post(PATH, json=body, headers={"x-burnish-user": caller})

    async def asked(self, messages: list[dict[str, Any]] = QUESTION, caller: str = "local") -> Any:
        """Ask, and return the messages as the engine got them."""
        answer = await self.ask(messages, caller)
        assert answer.status_code == 200, answer.text
        return self.engine.requests[-1].json()["messages"]

    async def say(self, comment: str, answer: httpx.Response | None = None, caller: str = "local") -> Any:
        completion_id = (answer or await self.ask(caller=caller)).headers["x-burnish-completion-id"]
        body = {"completion_id": completion_id, "rating": "bad", "comment": comment}
        said = await self.http.post("/v1/feedback", json=body, headers={"x-burnish-user": caller})
        assert said.status_code == 201, said.text
        return said.json()

    async def listed(self, caller: str = "local") -> Any:
        return (await self.http.get("/burnish/instructions", headers={"x-burnish-user": caller})).json()

    async def logged(self, answer: httpx.Response) -> Any:
        name = answer.headers["x-burnish-completion-id"]
        return (await self.http.get(f"/burnish/completions/{name}")).json()


@asynccontextmanager
async def world(tmp_path: Path, script: Script | None = None, **flags: Any) -> AsyncIterator[World]:
    flags = {"instructions": True} | flags
    async with behind(tmp_path, script or reply(completion()), **flags) as (http, engine):
        yield World(http, engine)


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[World]:
    async with world(tmp_path) as here:
        yield here


def text(*instructions: str) -> str:
    return "\n".join([HEAD, *(f"- {instruction}" for instruction in instructions)])


def system(*instructions: str) -> dict[str, str]:
    return {"role": "system", "content": text(*instructions)}


async def test_what_was_said_is_in_the_next_request_its_header_and_the_log(here: World) -> None:
    first = await here.ask()
    assert "x-burnish-instructions" not in first.headers
    assert here.engine.requests[-1].json()["messages"] == QUESTION
    await here.say("too long", first)
    second = await here.ask()
    assert second.headers["x-burnish-instructions"] == "1"
    assert here.engine.requests[-1].json() == {"model": "mock", "messages": [system("too long"), *QUESTION]}
    assert (await here.logged(first))["instructions"] is None
    record = await here.logged(second)
    assert record["instructions"] == text("too long")
    assert record["messages"] == QUESTION, "the log keeps what the client sent"
    history = (await here.http.get("/burnish/completions")).json()["data"]
    assert [each["instructions"] for each in history] == [text("too long"), None]
    await here.say("no lists")
    assert (await here.asked())[0] == system("too long", "no lists")


BODY = b' {"messages" : [{"role":"user","content":"h\\u00e4?"}],\n "model":"mock" } '


async def test_off_is_off_to_the_byte(tmp_path: Path) -> None:
    async with world(tmp_path, instructions=False) as here:
        await here.say("too long")
        await here.http.post("/burnish/instructions", json={"text": "in German"})
        answer = await here.http.post(PATH, content=BODY, headers={"content-type": "application/json"})
        assert here.engine.requests[-1].body == BODY
        assert "x-burnish-instructions" not in answer.headers
        assert (await here.logged(answer))["instructions"] is None
        listed = await here.listed()
        assert (listed["instructions"], listed["text"]) == (False, text("too long", "in German"))
        status = (await here.http.get("/burnish/status")).json()
        assert status["instructions"] == {"on": False, "count": 2}
        typed = await here.ask([{"role": "user", "content": "/rl status"}])
        assert "instructions" not in typed.json()["choices"][0]["message"]["content"]
    async with world(tmp_path) as here:
        assert (await here.asked())[0] == system("too long", "in German"), "comments from before count"
        status = (await here.http.get("/burnish/status")).json()
        assert status["instructions"] == {"on": True, "count": 2}
        typed = await here.ask([{"role": "user", "content": "/rl status"}])
        assert "2 of your instructions" in typed.json()["choices"][0]["message"]["content"]
        ann = {"x-burnish-user": "ann", "content-type": "application/json"}
        await here.http.post(PATH, content=BODY, headers=ann)
        assert here.engine.requests[-1].body == BODY, "without instructions no byte changes either"


PARTS = [{"type": "text", "text": "Be kind.", "cache_control": {"type": "ephemeral"}}]
EXTENDED: list[tuple[list[dict[str, Any]], list[Any]]] = [
    ([{"role": "system", "content": "Be kind."}], [f"Be kind.\n\n{text('too long')}"]),
    ([{"role": "developer", "content": "Be kind."}], [f"Be kind.\n\n{text('too long')}"]),
    ([{"role": "system", "content": ""}], [text("too long")]),
    ([{"role": "system", "content": PARTS}], [[*PARTS, {"type": "text", "text": text("too long")}]]),
    (
        [{"role": "system", "content": "One."}, {"role": "system", "content": "Two.", "name": "x"}],
        ["One.", f"Two.\n\n{text('too long')}"],
    ),
]


async def test_the_system_prompt_of_the_client_is_extended(here: World) -> None:
    later = [*QUESTION, {"role": "assistant", "content": "A leaf."}]
    later += [{"role": "system", "content": "Late."}, {"role": "user", "content": "And?"}]
    await here.say("too long")
    for sent, got in EXTENDED:
        wanted = [{**message, "content": content} for message, content in zip(sent, got, strict=True)]
        assert await here.asked([*sent, *later]) == [*wanted, *later]


async def test_everything_else_of_a_request_stays(here: World) -> None:
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"b": 1, "a": [1.5, None, "ä"]}}}]
    body = {"tools": tools, "model": "mock", "messages": QUESTION, "temperature": 0.1, "x": {"y": []}}
    await here.say("too long")
    await here.http.post(PATH, json=body)
    got = here.engine.requests[-1].json()
    assert list(got) == list(body)
    assert got == body | {"messages": [system("too long"), *QUESTION]}


async def test_requests_without_a_place_for_it_go_untouched_with_a_header(here: World) -> None:
    await here.say("too long")
    odd: list[list[Any]] = [[{"role": "system", "content": content}, *QUESTION] for content in (None, 7)]
    for messages in ([], [{"role": "system", "content": "No question."}], *odd):
        answer = await here.ask(messages)
        assert here.engine.requests[-1].json() == {"model": "mock", "messages": messages}
        assert answer.headers["x-burnish-instructions"] == "0"
        assert (await here.logged(answer))["instructions"] is None


async def test_an_engine_that_refuses_it_gets_the_request_as_it_was_sent(tmp_path: Path) -> None:
    async def gemma(request: Received, writer: asyncio.StreamWriter) -> None:
        if request.json()["messages"][0]["role"] == "system":
            await reply(b'{"error":"System role not supported"}', status="400 Bad Request")(request, writer)
        else:
            await reply(completion())(request, writer)

    async with world(tmp_path, gemma) as here:
        await here.say("too long")
        answer = await here.ask()
        assert (answer.status_code, answer.headers["x-burnish-instructions"]) == (200, "0")
        got = [request.json()["messages"] for request in here.engine.requests[-2:]]
        assert got == [[system("too long"), *QUESTION], QUESTION]
        assert (await here.logged(answer))["instructions"] is None
        own = await here.ask([{"role": "system", "content": "Be kind."}, *QUESTION])
        assert own.status_code == 400, "a request that is refused by itself fails as it would have"
        assert (await here.logged(own))["instructions"] is None


async def test_a_stream_streams(tmp_path: Path) -> None:
    parts = events("one two three")
    async with world(tmp_path, stream(parts)) as here:
        await here.http.post("/burnish/instructions", json={"text": "in German"})
        body = {"model": "mock", "messages": QUESTION, "stream": True}
        async with here.http.stream("POST", PATH, json=body) as answer:
            got = b"".join([chunk async for chunk in answer.aiter_raw()])
        assert got == b"".join(parts)
        assert answer.headers["x-burnish-instructions"] == "1"
        assert here.engine.requests[-1].json() == body | {"messages": [system("in German"), *QUESTION]}
        assert (await here.logged(answer))["instructions"] == text("in German")


async def test_the_next_turn_and_what_is_typed_find_the_answer(here: World) -> None:
    await here.say("too long")
    first = await here.ask()
    told = [*QUESTION, {"role": "assistant", "content": "Hello!"}]
    command = [*told, {"role": "user", "content": "/rl bad no lists, please"}]
    typed = (await here.ask(command)).json()["choices"][0]["message"]
    assert typed["content"].startswith("burnish: rated bad with your comment")
    rated = (await here.http.get("/v1/feedback")).json()["data"][0]
    assert rated["completion_id"] == first.headers["x-burnish-completion-id"]
    following = [*command, typed, {"role": "user", "content": "And coffee?"}]
    second = await here.ask(following)
    got = here.engine.requests[-1].json()["messages"]
    assert got == [system("too long", "no lists, please"), *told, following[-1]]
    records = [await here.logged(first), await here.logged(second)]
    assert records[0]["conversation_id"] == records[1]["conversation_id"]
    assert records[1]["messages"] == [*told, following[-1]]


async def test_undo_takes_the_instruction_away_at_once(here: World) -> None:
    said = await here.say("too long")
    assert len(await here.asked()) == 2
    await here.http.delete(f"/v1/feedback/{said['id']}")
    assert await here.asked() == QUESTION
    assert (await here.listed())["data"] == []


async def test_the_list_is_edited_over_http_and_the_next_request_follows(here: World) -> None:
    await here.say("too long")
    (instruction,) = (await here.listed())["data"]
    assert instruction.items() >= {"object": "instruction", "text": "too long", "state": "active"}.items()
    path = f"/burnish/instructions/{instruction['id']}"
    edited = (await here.http.patch(path, json={"text": "one sentence"})).json()
    assert (edited["text"], edited["comment"]) == ("one sentence", "too long")
    added = await here.http.post("/burnish/instructions", json={"text": "in\nGerman"})
    assert (added.status_code, added.json()["text"], added.json()["by_hand"]) == (201, "in German", True)
    assert (await here.asked())[0] == system("one sentence", "in German")
    assert (await here.listed())["text"] == text("one sentence", "in German")
    assert (await here.http.delete(path)).json()["id"] == instruction["id"]
    await here.say("Too long!")
    assert (await here.asked())[0] == system("in German")
    assert (await here.http.delete(path)).status_code == 404


BAD_TEXTS = ("", " \n", "…!", "x" * 201, 7)
BAD_REQUESTS: list[tuple[str, Any, int, str | None]] = [
    *(("POST /burnish/instructions", {"text": text}, 422, "text") for text in BAD_TEXTS),
    ("POST /burnish/instructions", {}, 422, "text"),
    ("POST /burnish/instructions", {"text": "a", "caller": "b"}, 422, "caller"),
    ("POST /burnish/instructions", [], 422, None),
    ("PATCH /burnish/instructions/inst_0", {"text": "a"}, 404, "id"),
    ("DELETE /burnish/instructions/inst_0", None, 404, "id"),
]


async def test_malformed_requests_get_the_status_and_the_field(here: World) -> None:
    for request_line, body, status, param in BAD_REQUESTS:
        method, path = request_line.split()
        answer = await here.http.request(method, path, json=body)
        assert (answer.status_code, answer.json()["error"]["param"]) == (status, param), (path, body)
    assert (await here.listed())["data"] == []


async def test_an_instruction_is_its_callers_own(here: World) -> None:
    await here.say("too long", caller="ann")
    await here.say("too long", caller="ben")
    await here.say("no lists", caller="ben")
    assert (await here.asked(caller="ann"))[0] == system("too long")
    assert (await here.asked(caller="ben"))[0] == system("too long", "no lists")
    assert await here.asked() == QUESTION
    (instruction,) = (await here.listed("ann"))["data"]
    path = f"/burnish/instructions/{instruction['id']}"
    for caller, status in (("ben", 404), ("ann", 200)):
        assert (await here.http.delete(path, headers={"x-burnish-user": caller})).status_code == status
    assert await here.asked(caller="ann") == QUESTION
    assert (await here.asked(caller="ben"))[0] == system("too long", "no lists")


async def test_no_more_than_eight_are_added_and_those_by_hand_stay(here: World) -> None:
    await here.http.post("/burnish/instructions", json={"text": "in German"})
    for number in range(MAX_INSTRUCTIONS + 2):
        await here.say(f"comment {number}")
    kept = [f"comment {number}" for number in range(3, MAX_INSTRUCTIONS + 2)]
    last = await here.ask()
    assert here.engine.requests[-1].json()["messages"][0] == system("in German", *kept)
    assert last.headers["x-burnish-instructions"] == str(MAX_INSTRUCTIONS)
    listed = {each["text"]: each["state"] for each in (await here.listed())["data"]}
    displaced = [each for each, state in listed.items() if state == "displaced"]
    assert displaced == ["comment 2", "comment 1", "comment 0"]


async def test_while_the_log_is_locked_the_list_is_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    async with world(tmp_path) as here:
        await here.say("too long")
        assert len(await here.asked()) == 2
        await here.http.post("/burnish/instructions", json={"text": "in German"})
        # So it isn't this that ends the wait, but the log, which then says that it is locked.
        monkeypatch.setattr("burnish.proxy.instructions.instructions.READ_LIMIT_S", within(60))
        with locked(tmp_path / "data" / "burnish.db"):
            for _ in range(20):  # only the first one waits
                assert (await here.asked())[0] == system("too long")
        # A read that comes while it notices that it is free again may still be refused.
        await until_trouble(here.http, "")
        clock = SimpleNamespace(monotonic=lambda: time.monotonic() + PAUSE_S)
        monkeypatch.setattr("burnish.proxy.instructions.instructions.time", clock)
        assert (await here.asked())[0] == system("too long", "in German")


# What is active, by the version that answers


def instruction(name: str, *ids: str, by_hand: bool = False, at: float = 0.0) -> Instruction:
    return Instruction(f"inst_{name}", name, None if by_hand else name, by_hand, ids, at, at)


LEARNT = LearntFeedback(frozenset({"fb_02", "fb_04"}), "run_05")


@pytest.mark.parametrize(
    ("asked", "state"),
    [
        (instruction("learnt", "fb_02"), "learnt"),
        (instruction("learnt, and held out", "fb_01", "fb_02", "fb_03"), "learnt"),
        (instruction("said again since", "fb_02", "fb_06"), "active"),
        (instruction("said again since and learnt", "fb_02", "fb_04"), "learnt"),
        (instruction("held out only", "fb_03"), "active"),
        (instruction("later", "fb_06"), "active"),
        (instruction("by hand", by_hand=True), "active"),
        (instruction("by hand, and learnt", "fb_02", by_hand=True), "active"),
    ],
)
def test_an_instruction_that_was_learnt_is_not_added(asked: Instruction, state: str) -> None:
    assert states([asked], LEARNT) == [(asked, state)]
    assert states([asked], LearntFeedback()) == [(asked, "active")]


def test_two_instructions_that_came_to_say_the_same_are_added_once() -> None:
    one, other = instruction("one"), Instruction("inst_other", "One!", "two", False, (), 0.0, 0.0)
    listed = states([other, one], LearntFeedback())
    assert [state for _, state in listed] == ["active", "displaced"]
    added = addition(listed)
    assert added and (added.text, added.count) == (text("One!"), 1)


NAMES = st.text("abc", min_size=1, max_size=3)
BUILT = st.builds(instruction, NAMES, by_hand=st.booleans(), at=st.floats(0, 100))
INSTRUCTIONS = st.lists(BUILT, max_size=20, unique_by=lambda each: each.id)


@given(INSTRUCTIONS)
def test_no_list_is_longer_than_eight_and_none_by_hand_gives_way(instructions: list[Instruction]) -> None:
    listed = states(instructions, LearntFeedback())
    assert [each for each, _ in listed] == instructions
    active = [each for each, state in listed if state == "active"]
    assert len(active) == min(len({each.text for each in instructions}), MAX_INSTRUCTIONS)
    if any(not each.by_hand for each in active):
        assert all(state == "active" for each, state in listed if each.by_hand)
    added = addition(listed)
    assert (added.count if added else 0) == len(active)


# Before an engine that swaps versions


async def told(http: httpx.AsyncClient, engine: Engine, model: str = "default") -> tuple[list[str], str]:
    """Ask; return the instructions that the engine was told, and the completion's id."""
    body = {"model": model, "messages": [{"role": "user", "content": "Who are you?"}]}
    answer = await http.post("/v1/chat/completions", json=body)
    assert answer.status_code == 200, answer.text
    messages = engine.asked[-1][1]["messages"]
    instructions = [line.removeprefix("- ") for line in messages[0]["content"].splitlines()[1:]]
    assert answer.headers.get("x-burnish-instructions", "0") == str(len(instructions))
    return instructions, answer.headers["x-burnish-completion-id"]


async def said(http: httpx.AsyncClient, completion: str, comment: str) -> str:
    body = {"completion_id": completion, "rating": "bad", "comment": comment}
    return str((await http.post("/v1/feedback", json=body)).json()["id"])


async def live(http: httpx.AsyncClient, number: int) -> None:
    path, body = ("rollback", {"to": 0}) if number == 0 else (f"{number}/promote", {"force": True})
    answer = await http.post(f"/burnish/adapters/{path}", json=body)
    assert answer.json()["live"] == number, answer.text


async def test_a_version_retires_what_it_and_its_ancestors_learnt(tmp_path: Path, weights: Path) -> None:
    engine = Engine()
    flags = {"instructions": True}
    async with foreign_engine(tmp_path, engine, weights, flags, schedule="manual") as http:
        long = await said(http, (await told(http, engine))[1], "too long")
        first = registered(tmp_path, weights, 1, feedback_ids=[long], objective="critique").number
        lists = await said(http, (await told(http, engine))[1], "no lists")
        learnt = {"parent": first, "feedback_ids": [lists], "objective": "critique"}
        second = registered(tmp_path, weights, 2, **learnt).number
        await http.post("/burnish/instructions", json={"text": "in German"})
        all_of_them = ["too long", "no lists", "in German"]
        assert (await told(http, engine))[0] == all_of_them

        await live(http, first)
        assert (await told(http, engine))[0] == ["no lists", "in German"]
        listed = (await http.get("/burnish/instructions")).json()["data"]
        found = {each["text"]: each["state"] for each in listed}
        assert found == {"in German": "active", "no lists": "active", "too long": "learnt"}
        await live(http, second)
        assert (await told(http, engine))[0] == ["in German"]
        assert (await http.get("/burnish/status")).json()["instructions"] == {"on": True, "count": 1}
        # Another version, or a model that burnish does not train, is told what that one has not learnt.
        assert (await told(http, engine, "smollm2@v1"))[0] == ["no lists", "in German"]
        assert (await told(http, engine, "smollm2@base"))[0] == all_of_them
        assert (await told(http, engine, "other"))[0] == all_of_them
        await live(http, 0)
        assert (await told(http, engine))[0] == all_of_them
        await live(http, second)
        assert (await told(http, engine))[0] == ["in German"]
