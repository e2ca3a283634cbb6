"""Answers with several choices (``n`` above 1): each is kept, shown and rated on its own."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import orjson
import pytest

from burnish.learner import export
from burnish.proxy.log import Keep, Log
from burnish.proxy.log.faults import Rules
from burnish.proxy.log.tally import RatingTally
from tests.proxy.log.exchanges import all_rated, assistant, capture, rate, user
from tests.support.inprocess import behind, logged
from tests.support.program import call
from tests.support.upstream import reply, stream

DAY_S = 24 * 60 * 60
TEXTS = ("Tom", "Minka", "Mia")
QUESTION = [user("A name for a cat?")]


def body(*texts: str) -> bytes:
    reasons = ("stop", "length", *["stop"] * len(texts))
    parts = enumerate(zip(texts, reasons, strict=False))
    choices = [{"index": n, "message": assistant(text), "finish_reason": why} for n, (text, why) in parts]
    return orjson.dumps({"id": "chatcmpl-1", "object": "chat.completion", "choices": choices})


def named(log: Log, *texts: str, **more: Any) -> str:
    return capture(log, QUESTION, chunks=(body(*texts),), **more)


async def test_each_choice_is_shown_and_rated(tmp_path: Path):
    async with behind(tmp_path, reply(body(*TEXTS))) as (http, _):
        made = await http.post("/v1/chat/completions", json={"model": "m", "n": 3, "messages": QUESTION})
        name = made.headers["x-burnish-completion-id"]
        for choice, rating in ((1, "bad"), (2, "good"), (None, "bad"), (1, "good")):
            said = {"completion_id": name, "rating": rating} | ({} if choice is None else {"choice": choice})
            answer = await http.post("/v1/feedback", json=said)
            assert (answer.status_code, answer.json()["choice"]) == (201, choice or 0)
            assert answer.json()["about"] == {"prompt": QUESTION[0]["content"], "reply": TEXTS[choice or 0]}
        again = await http.post("/v1/feedback", json={"completion_id": name, "rating": "bad", "choice": 0})
        assert (again.status_code, again.json()["repeated"]) == (200, True)
        (record,) = await logged(http)
        history = (await asyncio.to_thread(call, "history", url=str(http.base_url))).stdout
        (listed,) = (await http.get("/burnish/completions")).json()["data"]
    assert (record["reply"]["content"], record["rating"], record["choice_count"]) == ("Tom", -1.0, 3)
    shown = [(each["index"], each["reply"]["content"], each["rating"]) for each in record["choices"]]
    assert shown == [(0, "Tom", -1.0), (1, "Minka", 1.0), (2, "Mia", 1.0)]
    assert listed["choices"] == record["choices"]
    assert "choice 1 › good  Minka" in history


@pytest.mark.parametrize(
    ("reasons", "usable"),
    [
        (("stop", "content_filter"), (True, False)),
        (("moon_phase", "stop"), (False, True)),
        (("stop", "error"), (False, False)),
    ],
)
async def test_each_choice_ends_for_a_reason_of_its_own(
    tmp_path: Path, reasons: tuple[str, str], usable: tuple[bool, bool]
) -> None:
    choices = [
        {"index": n, "message": assistant(text), "finish_reason": why}
        for n, (text, why) in enumerate(zip(TEXTS[:2], reasons, strict=True))
    ]
    async with behind(tmp_path, reply(orjson.dumps({"id": "c", "choices": choices}))) as (http, _):
        made = await http.post("/v1/chat/completions", json={"model": "m", "n": 2, "messages": QUESTION})
        name = made.headers["x-burnish-completion-id"]
        for choice, teaches in enumerate(usable):
            said = {"completion_id": name, "rating": "good", "choice": choice}
            rated = (await http.post("/v1/feedback", json=said)).json()
            assert rated["usable"] is teaches, rated
        exported = [each["obstacle"] is None for each in (await http.get("/burnish/rated")).json()["data"]]
    assert exported == list(usable)


async def test_the_command_says_that_the_same_was_said_before(tmp_path: Path):
    async with behind(tmp_path, reply(body("Tom"))) as (http, _):
        await http.post("/v1/chat/completions", json={"model": "m", "messages": QUESTION})
        said = [(await asyncio.to_thread(call, "good", url=str(http.base_url))).stdout for _ in range(2)]
        typed = [*QUESTION, assistant("Tom"), user("/rl good")]
        answer = (await http.post("/v1/chat/completions", json={"model": "m", "messages": typed})).json()
        assert len((await http.get("/v1/feedback")).json()["data"]) == 1
    assert [text.partition(":")[0] for text in said] == ["rated good", "already rated good"]
    assert answer["choices"][0]["message"]["content"].startswith("burnish: rated good, as before – “Tom”")


async def test_choices_of_a_stream_and_of_a_text_completion_are_kept(tmp_path: Path):
    def piece(index: int, **more: Any) -> bytes:
        choice = {"index": index, "finish_reason": None, **more}
        return b"data: %b\n\n" % orjson.dumps({"id": "c", "choices": [choice]})

    parts = [piece(n, text=text) for text in ("M", "i") for n in (1, 0)]
    parts += [piece(n, text="", finish_reason="stop") for n in (0, 1)]
    async with behind(tmp_path, stream([*parts, b"data: [DONE]\n\n"])) as (http, _):
        asked = {"model": "m", "n": 2, "prompt": "A name:", "stream": True}
        await http.post("/v1/completions", json=asked)
        (record,) = await logged(http)
    assert [each["reply"]["content"] for each in record["choices"]] == ["Mi", "Mi"]


@pytest.mark.parametrize(
    ("said", "param", "hint"),
    [
        ({"choice": 3}, "choice", "0 to 2"),
        ({"choice": -1}, "choice", "greater than or equal to 0"),
        ({"choice": "1"}, "choice", "integer"),
        ({"choice": True}, "choice", "integer"),
        ({"choice": 1, "scope": "turn"}, "choice", "leave scope out"),
        ({"preferred_over": "ID"}, "preferred_over", "over itself"),
        ({"preferred_over": "ID/0"}, "preferred_over", "over itself"),
        ({"choice": 1, "preferred_over": "ID/1"}, "preferred_over", "over itself"),
        ({"preferred_over": "ID/3"}, "preferred_over", "0 to 2"),
        ({"preferred_over": "ID/x"}, "preferred_over", "an id, / and the number of its choice"),
        ({"preferred_over": "ID/1/1"}, "preferred_over", "an id, / and the number of its choice"),
    ],
)
async def test_a_choice_that_is_not_there_or_is_compared_with_itself_is_refused(
    tmp_path: Path, said: dict[str, Any], param: str, hint: str
):
    async with behind(tmp_path, reply(body(*TEXTS))) as (http, _):
        asked = {"model": "m", "n": 3, "messages": QUESTION}
        name = (await http.post("/v1/chat/completions", json=asked)).headers["x-burnish-completion-id"]
        worse = said.get("preferred_over", "").replace("ID", name)
        rated = {"preferred_over": worse} if worse else {"rating": "good"}
        refused = await http.post("/v1/feedback", json={"completion_id": name, **said, **rated})
    error = refused.json()["error"]
    assert (refused.status_code, error["param"], hint in error["message"]) == (422, param, True)


async def test_a_choice_teaches_with_its_own_text(log: Log):
    made, alone = named(log, *TEXTS), named(log, "Tom")
    for choice, reward in ((0, -1.0), (1, 1.0)):
        await rate(log, made, reward, choice=choice, comment=f"said of {choice}")
    await rate(log, alone)
    rated, rating = await all_rated(log), {each.answer: each for each in await log.ratings()}
    taught = {
        (sample.completion_id, sample.reply["content"], sample.reward, sample.finished, sample.comment)
        for each in rated
        if (
            sample := export.sample(
                each, export.ChosenRating(rating[each.answer], None, held_out=False), export.Policies("")
            )
        )
    }
    assert taught == {
        (made, "Tom", -1.0, True, "said of 0"),
        (f"{made}/1", "Minka", 1.0, False, "said of 1"),
        (alone, "Tom", 1.0, True, None),
    }
    counted = await log.rating_counts(RatingTally(Rules()), (), "")
    assert (counted.ready.good, counted.ready.bad, (await log.counts())["ratings"]) == (2, 1, 3)


async def test_choices_are_compared_pairwise(tmp_path: Path):
    async with behind(tmp_path, reply(body(*TEXTS))) as (http, _):
        asked = {"model": "m", "n": 3, "messages": QUESTION}
        answers = [await http.post("/v1/chat/completions", json=asked) for _ in range(2)]
        first, other = (answer.headers["x-burnish-completion-id"] for answer in answers)
        for choice, worse in ((1, first), (1, f"{first}/2"), (None, f"{first}/2"), (2, f"{other}/1")):
            said = {"completion_id": first, "preferred_over": worse}
            answer = await http.post("/v1/feedback", json=said | ({"choice": choice} if choice else {}))
            assert (answer.status_code, answer.json()["usable"]) == (201, True)
            assert answer.json()["preferred_over"] == worse
        same = {"completion_id": first, "choice": 1, "preferred_over": f"{first}/2"}
        assert (await http.post("/v1/feedback", json=same)).json()["repeated"]
        zeroth = {"completion_id": other, "preferred_over": f"{first}/0", "dry_run": True}
        assert (await http.post("/v1/feedback", json=zeroth)).json()["preferred_over"] == first
        shown = (await http.get(f"/burnish/completions/{first}")).json()
    assert len(shown["feedback"]) == 4
    assert all(each["usable"] for each in shown["feedback"])
    assert shown["rated"] is None, "a comparison rates nothing"


async def test_each_pair_teaches_until_an_answer_is_erased(log: Log):
    other = named(log, "Kitty", created_at=time.time() - 40 * DAY_S)
    made = named(log, *TEXTS)
    await rate(log, made, None, choice=1, preferred_over=made)
    await rate(log, made, None, choice=1, preferred_over=f"{made}/2")
    await rate(log, made, None, choice=2, preferred_over=other)
    await rate(log, made, None, choice=1, preferred_over=made)

    async def taught() -> dict[str, set[str]]:
        found = [each for each in await all_rated(log) if not each.fault]
        return {each.answer: {worse["content"] for worse in each.worse} for each in found}

    assert await taught() == {f"{made}/1": {"Tom", "Mia"}, f"{made}/2": {"Kitty"}}
    counted = await log.rating_counts(RatingTally(Rules()), (), "")
    assert counted.ready.pairs == 2
    assert await log.prune(Keep(days=30)) == 0, "what was compared is kept"
    await log.prune(Keep(days=30, rated=False))
    assert await taught() == {f"{made}/1": {"Tom", "Mia"}}


async def test_an_answer_that_a_choice_was_compared_with_is_kept(log: Log):
    old = named(log, *TEXTS, created_at=time.time() - 40 * DAY_S)
    better = capture(log, QUESTION, "Kitty")
    given = await rate(log, better, None, preferred_over=f"{old}/2")
    assert await log.prune(Keep(days=30)) == 0
    await log.prune(Keep(days=30, rated=False))
    assert (await log.feedback(given.id)).draft.preferred_over is None


async def test_a_conversation_goes_on_from_any_choice(log: Log):
    first = named(log, *TEXTS)
    second = capture(log, [*QUESTION, assistant("Mia"), user("Why?")], "It is short.")
    assert (await log.completion(second)).continues == first


async def test_what_was_said_before_is_no_new_record(log: Log):
    made, other = named(log, "Tom"), named(log, "Mia")
    first = await rate(log, made, 1.0)
    assert await rate(log, made, 1.0) == first
    assert await rate(log, made, 1.0, idempotency_key="k") == first
    different = [
        await rate(log, made, 1.0, comment="fine"),
        await rate(log, made, -1.0),
        await rate(log, made, 1.0),  # a change of mind
        await rate(log, made, 1.0, rater="eve"),
        await rate(log, made, 1.0, scope="turn"),
        await rate(log, other, 1.0),
    ]
    assert len({each.id for each in (first, *different)}) == 7
    await log.undo_feedback(different[-1].id)
    assert (await rate(log, other, 1.0)).id != different[-1].id


# Several prompts in one request


def texts(*choices: tuple[int, str]) -> bytes:
    made = [{"index": index, "text": text, "finish_reason": "stop"} for index, text in choices]
    return orjson.dumps({"id": "cmpl-1", "object": "text_completion", "choices": made})


def pieces(*choices: tuple[int, str]) -> list[bytes]:
    return [b"data: %b\n\n" % texts(choice) for choice in choices] + [b"data: [DONE]\n\n"]


PROMPTS = ["The capital of France is", "Two plus two is"]
BATCHES: dict[str, tuple[dict[str, Any], Any, list[tuple[str, str]]]] = {
    "one each": (
        {"prompt": PROMPTS},
        reply(texts((0, " Paris."), (1, " four."))),
        [(PROMPTS[0], " Paris."), (PROMPTS[1], " four.")],
    ),
    "two each, out of order": (
        {"prompt": PROMPTS, "n": 2},
        reply(texts((2, " four."), (0, " Paris."), (3, " 4."), (1, " Lyon."))),
        [(PROMPTS[0], " Paris."), (PROMPTS[0], " Lyon."), (PROMPTS[1], " four."), (PROMPTS[1], " 4.")],
    ),
    "streamed in turns": (
        {"prompt": PROMPTS, "stream": True},
        stream(pieces((1, " fo"), (0, " Par"), (1, "ur."), (0, "is."))),
        [(PROMPTS[0], " Paris."), (PROMPTS[1], " four.")],
    ),
    "the first one without an answer": (
        {"prompt": [*PROMPTS, "The sea is"]},
        reply(texts((1, " four."), (2, " blue."))),
        [(PROMPTS[1], " four."), ("The sea is", " blue.")],
    ),
}


@pytest.mark.parametrize("name", BATCHES)
async def test_each_answer_belongs_to_its_own_prompt(tmp_path: Path, name: str):
    asked, script, pairs = BATCHES[name]
    async with behind(tmp_path, script) as (http, _):
        made = await http.post("/v1/completions", json={"model": "m", **asked})
        answer = made.headers["x-burnish-completion-id"]
        (record,) = await logged(http)
        indexes = [each["index"] for each in record["choices"]]
        for index, (prompt, text) in zip(indexes, pairs, strict=True):
            said = {"completion_id": answer, "rating": "good", "choice": index}
            rated = (await http.post("/v1/feedback", json=said)).json()
            about = {"prompt": prompt, "reply": text.strip()}
            assert (rated["about"], rated["usable"]) == (about, True)
        exported = (await http.get("/burnish/rated")).json()["data"]
        over = {"completion_id": answer, "choice": indexes[-1], "preferred_over": answer}
        compared = (await http.post("/v1/feedback", json=over)).json()
    taught = [(each["messages"], each["reply"]["content"]) for each in exported]
    assert taught == [([user(prompt)], text) for prompt, text in pairs]
    assert record["prompt"] == pairs[0][0]
    assert compared["reason"] == "the two answers aren't to the same prompt"


async def test_an_answer_to_one_of_several_prompts_that_nothing_names_teaches_nothing(tmp_path: Path):
    async with behind(tmp_path, reply(texts((7, " four.")))) as (http, _):
        made = await http.post("/v1/completions", json={"model": "m", "prompt": PROMPTS})
        said = {"completion_id": made.headers["x-burnish-completion-id"], "rating": "good"}
        assert not (await http.post("/v1/feedback", json=said)).json()["usable"]
        (record,) = await logged(http)
    assert record["messages"] == [user(prompt) for prompt in PROMPTS]
    assert "which of the prompts" in record["error"]


async def test_choices_of_one_prompt_are_compared_and_those_of_another_are_not(log: Log):
    batch: dict[str, Any] = {
        "surface": "completions",
        "request_body": orjson.dumps({"prompt": PROMPTS, "n": 2}),
    }
    chunks = (texts((0, " Paris."), (1, " Lyon."), (2, " four."), (3, " five.")),)
    made = capture(log, [], chunks=chunks, **batch)
    await rate(log, made, None, choice=2, preferred_over=f"{made}/3")
    await rate(log, made, None, preferred_over=f"{made}/1")
    await rate(log, made, None, choice=1, preferred_over=f"{made}/3")
    taught = {each.answer: [worse["content"] for worse in each.worse] for each in await all_rated(log)}
    assert taught == {made: [" Lyon."], f"{made}/1": [], f"{made}/2": [" five."]}
