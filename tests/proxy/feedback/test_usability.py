"""A rating that can't teach says so: in its answer, in /rl, in commands, in lists; and training agrees."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from burnish.adapters.registry import Registry
from burnish.proxy.feedback.usability import text_faults
from burnish.proxy.log import Log
from burnish.proxy.log.faults import Rules
from burnish.proxy.log.tally import RatingTally
from burnish.proxy.records import CoveredAnswer
from burnish.proxy.surfaces.items import held
from burnish.training.lessons import DOUBTED
from tests.proxy.feedback.test_routes import served
from tests.proxy.log.exchanges import CALL, RESULT, all_rated, assistant, capture, rate, user
from tests.support.chat_wire import whole
from tests.support.inprocess import behind
from tests.support.lora import register, write_adapter
from tests.support.program import call
from tests.support.upstream import Received, Script, Upstream, completion, events, reply, stream

IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
CUT = "the answer was cut off or never came"
CUT_OFF = f"{CUT}: the upstream broke off: it closed the connection"
REFUSED = "the engine answered with an error"
EMPTY = "the reply is empty"
HELD = "the history is with the upstream"
PICTURED = "there are images, audio or files in the conversation"
OTHER_PROMPT = "the two answers aren't to the same prompt"
KEY = f"sk-{'a1B2c3D4' * 4}"
HOLDS_KEY = "the exchange or the feedback holds a key or a token (log.scrub)"
ON_GOOD = "only comments on answers that weren't good do"


@dataclass
class Burnish:
    http: httpx.AsyncClient
    upstream: Upstream

    async def ask(self, content: Any, script: Script | None = None, **more: Any) -> str:
        """Ask, and return the id of the answer, which may break off."""
        self.upstream.script = script or reply(completion("Tea."))
        body = {"model": "m", "messages": [user(content)], **more}
        async with self.http.stream("POST", "/v1/chat/completions", json=body) as answer:
            with suppress(httpx.HTTPError):
                await answer.aread()
        return answer.headers["x-burnish-completion-id"]

    async def say(self, completion_id: str, **said: Any) -> tuple[bool, str | None]:
        answer = await self.http.post("/v1/feedback", json={"completion_id": completion_id, **said})
        assert answer.status_code in (200, 201), answer.text
        return answer.json()["usable"], answer.json()["reason"]

    async def rl(self, question: Any, said: str, typed: str) -> str:
        messages = [user(question), assistant(said), user(typed)]
        answer = await self.http.post("/v1/chat/completions", json={"model": "m", "messages": messages})
        return answer.json()["choices"][0]["message"]["content"]

    async def shown(self, completion_id: str) -> list[dict[str, Any]]:
        """Return what was said of an answer; the list and the answer itself must tell the same."""
        one = (await self.http.get(f"/burnish/completions/{completion_id}")).json()
        listed = (await self.http.get("/burnish/completions")).json()["data"]
        (same,) = [each for each in listed if each["id"] == completion_id]
        assert same["feedback"] == one["feedback"]
        return list(one["feedback"])

    async def command(self, *arguments: str) -> str:
        done = await asyncio.to_thread(call, *arguments, url=str(self.http.base_url))
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture
async def burnish(tmp_path: Path) -> AsyncIterator[Burnish]:
    async with behind(tmp_path, reply(completion())) as (http, upstream):
        yield Burnish(http, upstream)


def refusing(message: dict[str, Any]) -> Script:
    return reply(orjson.dumps(whole(message)))


@pytest.mark.parametrize(
    ("content", "script", "more", "reason"),
    [
        ("Tea?", None, {}, None),
        ("Tea?", refusing(CALL), {"tools": TOOLS}, None),
        ("Tea?", stream(events("half an", done=False), cut=True), {"stream": True}, CUT_OFF),
        ("Tea?", reply(b'{"error": {"message": "no"}}', status="429 No"), {}, REFUSED),
        ("Tea?", reply(completion("")), {}, EMPTY),
        ("Tea?", refusing({"content": None, "refusal": "I can't."}), {}, "the model refused to answer"),
        ("Tea?", reply(b"<html>"), {}, "the question or the answer has no text"),
        ([IMAGE, {"type": "text", "text": "Tea?"}], None, {}, PICTURED),
        (f"Is {KEY} a key?", None, {}, HOLDS_KEY),
        ("Tea?", reply(completion(f"Use {KEY}.")), {}, HOLDS_KEY),
    ],
    ids=["answer", "tool call", "cut", "error", "empty", "refusal", "unread", "image", "key", "key told"],
)
async def test_every_way_to_rate_says_whether_it_can_teach(
    burnish: Burnish, content: Any, script: Script | None, more: dict[str, Any], reason: str | None
):
    made = await burnish.ask(content, script, **more)
    assert await burnish.say(made, rating="bad") == (reason is None, reason)
    assert await burnish.say(made, rating="bad") == (reason is None, reason), "a repeated one, too"
    (shown,) = await burnish.shown(made)
    assert (shown["usable"], shown["reason"], shown["learnt_by"]) == (reason is None, reason, None)
    rated = await burnish.command("rate", made, "good")
    assert ("nothing will be learnt from it: " + str(reason) in rated) == (reason is not None)
    history, show = await burnish.command("history"), await burnish.command("show", made)
    for text in (history, show):
        assert (f"teaches nothing: {reason}" in text) == (reason is not None)
    assert await burnish.say(made, correction="Tea is a drink.") == (reason is None, reason)


async def test_an_upstream_that_was_down_looks_like_no_answer(burnish: Burnish):
    async def drop(request: Received, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    made = await burnish.ask("Tea?", drop)
    usable, reason = await burnish.say(made, rating="bad")
    assert not usable and str(reason).startswith(
        f"{CUT}: {burnish.upstream.url} broke off before it answered"
    )
    history = await burnish.command("history")
    assert "failed" in history
    assert "Tea? › no answer: " in history
    assert "ended         failed" in await burnish.command("show", made)


async def test_a_command_in_the_chat_says_so(burnish: Burnish):
    await burnish.ask("Tea?")
    vain, undo = f", but nothing will be learnt from it: {CUT_OFF}", "(/rl undo takes it back)"
    assert await burnish.rl("Tea?", "Tea.", "/rl good") == f"burnish: rated good – “Tea.” {undo}"
    await burnish.ask("Cut?", stream(events("half an", done=False), cut=True), stream=True)
    rated = await burnish.rl("Cut?", "half an", "/rl 4")
    assert rated == f"burnish: rated 4 of 5 (Good){vain} – “half an” {undo}"
    assert (await burnish.command("good")).startswith(f"rated good: “half an”{vain}")


async def test_each_part_of_a_statement_has_rules_of_its_own(burnish: Burnish):
    plain, same = await burnish.ask("Tea?"), await burnish.ask("Tea?")
    other, empty = await burnish.ask("Coffee?"), await burnish.ask("Tea?", reply(completion("")))
    tools = await burnish.ask("Tea?", tools=TOOLS)
    pictured = await burnish.ask([IMAGE, {"type": "text", "text": "Tea?"}])
    told = await burnish.ask("Tea?", reply(completion(f"Use {KEY}.")))
    alone: list[tuple[str, dict[str, Any], str | None]] = [
        (plain, {"preferred_over": same}, None),
        (plain, {"preferred_over": other}, OTHER_PROMPT),
        (plain, {"preferred_over": empty}, EMPTY),
        (empty, {"preferred_over": plain}, EMPTY),
        (plain, {"comment": "too long"}, None),
        (empty, {"comment": "say something"}, None),
        (tools, {"comment": "too long"}, None),
        (pictured, {"comment": "too long"}, PICTURED),
        (empty, {"correction": "Tea."}, EMPTY),
        (tools, {"correction": "Tea."}, None),
        (plain, {"preferred_over": told}, HOLDS_KEY),
        (tools, {"correction": f"Use {KEY}."}, HOLDS_KEY),
        (plain, {"comment": f"not {KEY}"}, HOLDS_KEY),
    ]
    for made, said, why in alone:
        assert await burnish.say(made, **said) == (why is None, why), said
    parts: list[tuple[str, dict[str, Any], str]] = [
        (plain, {"rating": "good", "comment": "nice"}, f"the comment can't teach: {ON_GOOD}"),
        (plain, {"rating": "good", "preferred_over": other}, f"the preference can't teach: {OTHER_PROMPT}"),
        (empty, {"rating": "bad", "comment": "hm"}, f"the rating can't teach: {EMPTY}"),
    ]
    for made, said, why in parts:
        assert await burnish.say(made, **said) == (True, why), said
    assert await burnish.say(plain, comment="nice") == (False, ON_GOOD), "its rating is good"
    usable, reason = await burnish.say(other, rating=3, scale="likert")
    assert usable
    assert "in the middle" in str(reason)


async def test_a_rating_of_a_turn_says_how_many_of_its_answers_cannot_teach(log: Log):
    turn = [user("do it"), CALL, RESULT]
    cut = capture(log, turn[:1], CALL, outcome="cut")
    done = capture(log, turn, "Done.")
    added = await log.add_feedback((await rate(log, done, scope="turn")).draft)
    assert added.covered_answers == (CoveredAnswer("incomplete"),)
    async with served(log) as service:
        http = service.http
        both = [user("go on"), CALL, RESULT]
        capture(log, both[:1], CALL, outcome="cut")
        last = capture(log, both, "Done.", outcome="cancelled")
        said = {"rating": "bad", "scope": "turn"}
        some = (await http.post("/v1/feedback", json={"completion_id": done, **said})).json()
        none = (await http.post("/v1/feedback", json={"completion_id": last, **said})).json()
        rows = {each["id"]: each for each in (await http.get("/burnish/completions")).json()["data"]}
    assert (some["usable"], some["reason"]) == (True, f"1 of 2 answers can't teach: {CUT}")
    assert (none["usable"], none["reason"]) == (False, CUT)
    (of_the_cut,) = [each for each in rows[cut]["feedback"] if each["id"] == some["id"]]
    assert (of_the_cut["usable"], of_the_cut["reason"]) == (False, CUT), "each answer tells its own"


async def test_an_answer_that_a_rating_of_its_turn_covers_is_judged_by_its_own_context(log: Log):
    turn = [user([IMAGE, {"type": "text", "text": "do it"}]), CALL, RESULT]
    first, last = capture(log, turn[:1], CALL), capture(log, turn, "Done.")
    await rate(log, last, scope="turn")
    async with served(log) as service:
        said = {"completion_id": last, "rating": "bad", "scope": "turn"}
        receipt = (await service.http.post("/v1/feedback", json=said | {"rater": "bob"})).json()
        assert (receipt["usable"], receipt["reason"]) == (False, PICTURED)
        listed = (await service.http.get("/burnish/completions")).json()["data"]
        shown = [(await service.http.get(f"/burnish/completions/{name}")).json() for name in (last, first)]
    for page in (listed, shown):
        reasons = {each["id"]: each["feedback"][0]["reason"] for each in page}
        assert reasons == {last: PICTURED, first: PICTURED}


async def test_later_reasons_are_told_where_the_rating_is_shown(burnish: Burnish):
    made = await burnish.ask("Tea?")
    await burnish.say(made, rating="good", comment="nice")
    await burnish.say(made, rating="bad")
    await burnish.say(made, comment="too long")
    await burnish.say(made, comment="far too long")
    shown = {each["comment"] or each["reward"]: each for each in await burnish.shown(made)}
    assert shown["nice"]["reason"] == f"replaced by a later rating, {shown[-1.0]['id']}"
    assert not shown["nice"]["usable"]
    assert "counts instead" in shown["too long"]["reason"]
    assert [shown[name]["usable"] for name in (-1.0, "far too long")] == [True, True]
    history = await burnish.command("history")
    assert "good “nice” – teaches nothing: replaced by a later rating" in history
    assert "“far too long”" in history


async def test_what_runs_did_with_a_rating_is_told_where_it_is_shown(log: Log, tmp_path: Path):
    made = [capture(log, [user(f"{n}?")]) for n in range(4)]
    ids = [(await rate(log, each)).id for each in made]
    registry, weights = Registry(tmp_path / "adapters"), write_adapter(tmp_path / "made")
    doubted = {made[1]: DOUBTED}
    register(registry, weights, feedback_ids=ids[:2], held_out=ids[2:3], unlearnt=doubted)
    register(registry, weights, feedback_ids=ids[2:])
    registry.record(2, "rejected", "worse")
    async with served(log, registry.versions()) as service:
        listed = (await service.http.get("/burnish/completions")).json()["data"][::-1]
    feedback = [each for row in listed for each in row["feedback"]]
    told = [(each["usable"], each["reason"], each["learnt_by"]) for each in feedback]
    assert told == [
        (True, None, 1),
        (False, f"v1 left it out: {DOUBTED}", None),
        (True, "held out: v1 was tested on it", None),
        (True, None, None),
    ]


async def test_training_leaves_out_a_preference_over_an_answer_to_another_prompt(log: Log):
    better, other = capture(log, [user("Tea?")]), capture(log, [user("Coffee?")])
    await rate(log, better, None, preferred_over=other)
    (rated,) = await all_rated(log)
    assert rated.fault == "other_prompt"
    counts = await log.rating_counts(RatingTally(Rules()), (), "")
    assert (counts.ready.pairs, counts.ready.neutral, counts.left_out) == (0, 0, {"other_prompt": 1})
    await rate(log, better, 1.0, preferred_over=other)
    (rated,) = await all_rated(log)
    assert rated.fault is None, "the rating teaches"


REFUSAL = {"role": "assistant", "content": None, "refusal": "I can't."}
UNFIT: dict[str, tuple[list[dict[str, Any]], Any, dict[str, Any], str | None]] = {
    "a plain answer": ([user("Tea?")], "Tea.", {"reward": 1.0}, None),
    "an image": ([user([IMAGE, {"type": "text", "text": "Tea?"}])], "Tea.", {"reward": 1.0}, PICTURED),
    "a history with the upstream": ([held("conv_x"), user("Tea?")], "Tea.", {"reward": 1.0}, HELD),
    "a comment on an image": ([user([IMAGE])], "Tea.", {"reward": None, "comment": "too long"}, PICTURED),
    "a correction of a held one": ([held("c"), user("Tea?")], "Tea.", {"reward": None, "correction": "No."}, HELD),
    "a refusal": ([user("Tea?")], REFUSAL, {"reward": -1.0}, "the model refused to answer"),
    "a comment on a refusal": ([user("Tea?")], REFUSAL, {"reward": -1.0, "comment": "but you can"}, None),
}  # fmt: skip


@pytest.mark.parametrize("name", UNFIT)
async def test_what_cannot_teach_by_its_texts_is_not_ready_and_its_reason_is_counted(log: Log, name: str):
    context, answer, said, why = UNFIT[name]
    made, rules = capture(log, context, answer), Rules(text_faults=text_faults)
    await rate(log, made, **said)
    async with served(log) as service:
        (shown,) = (await service.http.get(f"/burnish/completions/{made}")).json()["feedback"]
    assert (shown["usable"], None if shown["usable"] else shown["reason"]) == (why is None, why)
    counts = await log.rating_counts(RatingTally(rules), (), "")
    assert counts.left_out == ({why: 1} if why else {})
    assert counts.ready.new == (0 if why else 1)
    (rating,) = await log.ratings(rules)
    assert rating.fault == why, "nor does a run choose it"


async def test_undo_says_what_counts_now(burnish: Burnish):
    made = await burnish.ask("Tea?")
    for rating in ("good", "4", "bad"):
        await burnish.command("rate", made, rating)
    for taken, now in (("bad", "it counts as 4 of 5 (Good) now"), ("4 of 5 (Good)", "it counts as good now")):
        assert await burnish.command("undo") == f"taken back: {taken} on “Tea.”; {now}\n"
    assert await burnish.rl("Tea?", "Tea.", "/rl bad") != ""
    undone = await burnish.rl("Tea?", "Tea.", "/rl undo")
    assert undone == "burnish: taken back; it counts as good now – “Tea.”"
    assert "no rating counts for it now" in await burnish.command("undo")
    await burnish.say(made, comment="too long")
    undone = await burnish.command("undo")
    assert undone == "taken back: your comment on “Tea.”; no rating counts for it now\n"


async def test_a_rater_without_weight_and_an_objective_that_cannot_use_it_are_told(tmp_path: Path):
    train = {"rater_weights": {"eve": 0.0}, "objective": "dpo"}
    async with behind(tmp_path, reply(completion()), train=train) as (http, upstream):
        burnish = Burnish(http, upstream)
        made, same = await burnish.ask("Tea?"), await burnish.ask("Tea?")
        weightless = (False, "train.rater_weights gives this rater no weight")
        assert await burnish.say(made, rating="good", rater="eve") == weightless
        assert await burnish.say(made, rating="good") == (False, "nothing in it that dpo learns from")
        assert await burnish.say(made, preferred_over=same) == (True, None)
