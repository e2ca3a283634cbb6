"""Random sessions of people at agents, over HTTP: each rating reaches the answer that is meant, or is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import httpx
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.dialects import DIALECTS, Answer, Dialect, Entry, Result, Said, user
from tests.support.inprocess import behind
from tests.support.upstream import Received, reply

SYSTEM = "You are a careful agent."
SUB_AGENT = "You are a file search specialist for Claude Code, which finds things."
TITLE = "You are a title generator. You output ONLY a thread title. Nothing else."
COMPACTION = "CRITICAL: Respond with TEXT ONLY. Do NOT call any tools.\n\nSummarise the conversation so far."
REMINDER = "<system-reminder>\nToday is Monday.\n</system-reminder>"
COMMON = "OK."
"""What is said in many places."""
SAYS = "x-test-says"
"""A header that tells the server what to answer, so that requests may be sent side by side."""


@dataclass(frozen=True)
class Made:
    completion_id: str
    response_id: str | None
    """Ollama gives none."""
    text: str


async def ask(
    http: httpx.AsyncClient, dialect: Dialect, system: str, history: Sequence[Entry], says: Answer
) -> Made:
    if not dialect.parts:
        split = [[Said(e.role, (p,)) for p in e.parts] if isinstance(e, Said) else [e] for e in history]
        history = [entry for entries in split for entry in entries]
    headers = {SAYS: quote(orjson.dumps({"text": says.text, "call": says.call}))}
    answer = await http.post(dialect.path, json=dialect.body(history, system), headers=headers)
    assert answer.status_code == httpx.codes.OK, answer.text
    body = answer.json()
    response_id = body.get("id") or body.get("responseId")
    return Made(answer.headers.get("x-burnish-completion-id", ""), response_id, dialect.says(body))


@dataclass
class Turn:
    """One request of the person, as the agent works on it: a regeneration and an edit are turns of their own."""

    asked: str
    begin: int
    """Where it begins in the history."""
    answers: list[Made] = field(default_factory=list)


@dataclass
class Session:
    """A person, an agent, and who of both said what."""

    http: httpx.AsyncClient
    dialect: Dialect
    clock: bool
    """Whether the system prompt is another one for each request."""
    rated_in_history: bool
    """Whether ``/rl`` and what burnish says to it stay in what the agent sends."""
    history: list[Entry] = field(default_factory=list)
    way: list[Turn] = field(default_factory=list)
    """What the history holds, less what was summed up."""
    turns: list[Turn] = field(default_factory=list)
    """All there ever were."""
    next_asked: dict[str, str] = field(default_factory=dict)
    """By completion: what the person said right after it, first."""
    summed_up: bool = False
    """Whether there was a compaction."""
    _numbers: count[int] = field(default_factory=count)

    def system(self) -> str:
        return f"{SYSTEM} It is {next(self._numbers)} o'clock." if self.clock else SYSTEM

    def answer(self, common: bool, call: bool = False) -> Answer:
        number = next(self._numbers)
        text = COMMON if common else f"Answer number {number}, of no other one."
        return Answer(text, number if call else None)

    # What people and agents do

    async def ask(self, calls: int, common: bool, reminded: bool) -> None:
        await self._turn(f"Question {next(self._numbers)}?", calls, common, reminded)

    async def say_again(self, common: bool) -> None:
        """The person says the same as ever, the model too."""
        await self._turn("Go on.", 0, common, reminded=False)

    async def regenerate(self, common: bool) -> None:
        if self.way:
            turn = self.way.pop()
            said = self.history[turn.begin]
            del self.history[turn.begin :]
            await self._work(turn.asked, said, 0, common)

    async def edit(self, which: int, calls: int, common: bool) -> None:
        if self.way:
            index = which % len(self.way)
            begin = self.way[index].begin
            del self.way[index:], self.history[begin:]
            await self._turn(f"Question {next(self._numbers)}, put otherwise?", calls, common, reminded=True)

    async def compact(self, keep: bool) -> None:
        """The agent has the conversation summed up, and goes on from that, perhaps with the last answer as it was."""
        if self.way:
            summary = self.answer(common=False)
            await ask(self.http, self.dialect, self.system(), [*self.history, user(COMPACTION)], summary)
            last = self.way[-1]
            kept: list[Entry] = [user(last.asked), Answer(last.answers[-1].text)] if keep else []
            self.history = [user(f"What was said: {summary.text}"), *kept]
            self.way = [Turn(last.asked, 1, last.answers)] if keep else []
            self.summed_up = True

    async def title(self) -> None:
        await ask(self.http, self.dialect, TITLE, [user("Generate a title: Question")], self.answer(True))

    async def _turn(self, asked: str, calls: int, common: bool, reminded: bool) -> None:
        parts = (REMINDER, asked, REMINDER) if reminded else (asked,)
        if self.way:
            self.next_asked.setdefault(self.way[-1].answers[-1].completion_id, asked)
        await self._work(asked, user(*parts), calls, common)

    async def _work(self, asked: str, said: Entry, calls: int, common: bool) -> None:
        turn = Turn(asked, len(self.history))
        self.way.append(turn)
        self.turns.append(turn)
        self.history.append(said)
        for _ in range(calls):
            call = self.answer(common, call=True)
            await self._answer(turn, call)
            # A sub-agent works beside the tool.
            found = [user("Look for it.")]
            await ask(self.http, self.dialect, SUB_AGENT, found, self.answer(common=True))
            self.history += [Result(call.call_id, "/rl good"), user(REMINDER)]
        await asyncio.gather(self._answer(turn, self.answer(common)), self.title())

    async def _answer(self, turn: Turn, answer: Answer) -> None:
        turn.answers.append(await ask(self.http, self.dialect, self.system(), list(self.history), answer))
        self.history.append(answer)

    # What they say of it

    async def rate_by_id(self, which: int, by_response: bool, scope: str) -> None:
        made = [(turn, answer) for turn in self.turns for answer in turn.answers]
        if made:
            turn, answer = made[which % len(made)]
            by_response = by_response and answer.response_id is not None
            kind = "response_id" if by_response else "completion_id"
            record = await self._feedback({kind: getattr(answer, kind), "rating": "bad", "scope": scope})
            await self._check(record, answer, turn.answers if scope == "turn" else [answer])

    async def rate_last(self) -> None:
        if self.turns:
            turn = self.turns[-1]
            record = await self._feedback({"last": True, "rating": "good", "scope": "turn"})
            await self._check(record, turn.answers[-1], turn.answers)

    async def rate_in_chat(self) -> None:
        if not self.way:
            return
        turn = self.way[-1]
        typed = [*self.history, user(REMINDER, "/rl good")]
        never = Answer("The model must not be asked.")
        said = await ask(self.http, self.dialect, self.system(), typed, never)
        assert said.text.startswith("burnish: ")
        if self.rated_in_history:
            self.history = [*typed, Answer(said.text)]
        if "nothing was rated" in said.text:
            # Only where the history is not what was sent before, and what was said tells nothing.
            assert self.summed_up or self.clock
            assert turn.answers[-1].text == COMMON
            assert await self._rated() == set()
            return
        (record,) = (await self.http.get("/v1/feedback?limit=1")).json()["data"]
        await self._check(record, turn.answers[-1], turn.answers)

    async def _feedback(self, body: dict[str, Any]) -> dict[str, Any]:
        answer = await self.http.post("/v1/feedback", json=body)
        assert answer.status_code == httpx.codes.CREATED, answer.text
        return answer.json()

    async def _check(self, record: dict[str, Any], meant: Made, covered: list[Made]) -> None:
        """The rating is of the answer that is meant and of its turn, and gone with all of it when taken back."""
        assert record["completion_id"] == meant.completion_id
        found = await self._rated()
        everything = {each.completion_id for each in covered}
        # Where histories change and answers are alike, an earlier answer of the turn may not be known again.
        sure = {meant.completion_id} if self.clock or self.summed_up else everything
        assert sure <= found <= everything
        await self.http.delete(f"/v1/feedback/{record['id']}")
        assert await self._rated() == set()

    async def _rated(self) -> set[str]:
        listed = (await self.http.get("/burnish/completions?limit=1000")).json()["data"]
        return {each["id"] for each in listed if each["rating"] is not None}

    async def check_next_turns(self) -> None:
        """What follows an answer is what the person said next: no tool, reminder, command or side request."""
        for turn in self.turns:
            for answer in turn.answers:
                shown = (await self.http.get(f"/burnish/completions/{answer.completion_id}")).json()
                expected = self.next_asked.get(answer.completion_id)
                unsure = self.clock or self.summed_up
                assert shown["next_turn"] == expected or (unsure and shown["next_turn"] is None)


flag = st.booleans()
place = st.integers(0, 30)
doing = st.one_of(
    st.tuples(st.just("ask"), st.integers(0, 3), flag, flag),
    st.tuples(st.just("say_again"), flag),
    st.tuples(st.just("regenerate"), flag),
    st.tuples(st.just("edit"), place, st.integers(0, 2), flag),
    st.tuples(st.just("compact"), flag),
    st.tuples(st.just("rate_by_id"), place, flag, st.sampled_from(["completion", "turn"])),
    st.tuples(st.just("rate_last")),
    st.tuples(st.just("rate_in_chat")),
)
BEGUN = [("ask", 2, False, True), ("ask", 0, True, False), ("say_again", True), ("ask", 1, True, True)]
sessions = st.tuples(st.permutations(BEGUN), st.lists(doing, min_size=4, max_size=14)).map(
    lambda parts: [*parts[0], *parts[1]]
)


@pytest.mark.parametrize("surface", [name for name, dialect in DIALECTS.items() if dialect.history])
@settings(max_examples=6, deadline=None)
@given(doings=sessions, clock=flag, kept=flag)
async def test_each_rating_reaches_the_answer_that_is_meant_or_is_refused(
    tmp_path_factory: pytest.TempPathFactory, surface: str, doings: list[Any], clock: bool, kept: bool
) -> None:
    dialect, ids = DIALECTS[surface], count()

    async def model(request: Received, writer: asyncio.StreamWriter) -> None:
        said = Answer(**orjson.loads(unquote(request.header(SAYS) or "")))
        await reply(orjson.dumps(dialect.answer(said, next(ids))))(request, writer)

    async with behind(tmp_path_factory.mktemp("log"), model) as (http, _):
        session = Session(http, dialect, clock, kept)
        for name, *arguments in doings:
            await getattr(session, name)(*arguments)
        await session.rate_in_chat()
        await session.check_next_turns()


@pytest.mark.parametrize("beside", ["thinking", "reference"])
async def test_an_answer_in_parts_is_known_again_when_the_client_sends_the_parts(
    tmp_path: Path, beside: str
) -> None:
    """As Mistral's models answer, and its SDK sends the answer back."""
    part = {"type": beside, beside: [{"type": "text", "text": "Hm."}]}
    said = {"role": "assistant", "content": [part, {"type": "text", "text": "Rain."}]}
    choice = {"index": 0, "message": said, "finish_reason": "stop"}
    asked: list[dict[str, Any]] = [{"role": "user", "content": "Weather?"}]
    async with behind(tmp_path, reply(orjson.dumps({"id": "c", "choices": [choice]}))) as (client, _):
        await client.post("/v1/chat/completions", json={"model": "m", "messages": asked})
        asked += [said, {"role": "user", "content": "/rl good"}]
        rated = await client.post("/v1/chat/completions", json={"model": "m", "messages": asked})
    assert "rated good – “Rain.”" in rated.text
