"""What counts of all feedback."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from burnish.proxy.http.errors import Conflict
from burnish.proxy.log import Log
from burnish.proxy.log.ratings import CompletionPlace, Effective, effective, for_training
from burnish.proxy.records import Feedback, FeedbackDraft, FeedbackReceipt, RatedCompletion
from tests.proxy.log.exchanges import CALL, RESULT, Message, all_rated, assistant, capture, rate, system, user


async def rewards(log: Log) -> dict[str, float]:
    return {each.completion.id: each.reward for each in await all_rated(log)}


async def test_a_rated_completion_has_all_that_training_needs(log: Log):
    made = capture(log, [user("hi")], "Hello!", params={"temperature": 0.5})
    feedback = await rate(log, made, 0.5, comment="nice", weight=2.0)
    (rated,) = await all_rated(log)
    assert rated == RatedCompletion(rated.completion, 0.5, 2.0, (feedback.id,), "nice", None)
    assert rated.completion.messages == (user("hi"),)
    assert rated.completion.reply == assistant("Hello!")
    assert rated.completion.params == {"temperature": 0.5}
    assert rated.completion.rating == 0.5


async def test_of_the_same_rater_the_latest_rating_counts_that_was_not_undone(log: Log):
    made = capture(log, [user("hi")])
    first = await rate(log, made, 1.0, comment="fine")
    second = await rate(log, made, -1.0)
    (rated,) = await all_rated(log)
    assert (rated.reward, rated.feedback_ids, rated.comment) == (-1.0, (second.id,), None)
    assert (await log.feedback(first.id)).superseded_by == second.id
    assert (await log.completions())[0].rating == -1.0
    undone = await log.undo_feedback(second.id)
    assert undone.undone_at is not None
    assert await log.undo_feedback(second.id) == undone
    assert await rewards(log) == {made: 1.0}
    assert (await log.feedback(first.id)).superseded_by is None
    await log.undo_feedback(first.id)
    assert await all_rated(log) == []
    assert (await log.completion(made)).rating is None
    assert [each.id for each in await log.feedbacks()] == [second.id, first.id]


async def test_words_without_a_rating_are_kept_beside_the_rating(log: Log):
    commented, rated_id = capture(log, [user("a")]), capture(log, [user("b")])
    await rate(log, commented, None, comment="hm")
    await rate(log, rated_id, -1.0)
    await rate(log, rated_id, None, comment="too long")
    await rate(log, rated_id, None, correction="short")
    said, rated = await all_rated(log)
    assert (said.completion.id, said.reward, said.weight, said.comment) == (commented, 0.0, 1.0, "hm")
    assert rated.completion.id == rated_id
    assert (rated.comment, rated.correction, len(rated.feedback_ids)) == ("too long", "short", 3)


async def tool_turn(log: Log) -> list[str]:
    """A turn of two completions, then a turn of one."""
    history = [user("do it"), CALL, RESULT, assistant("did it"), user("thanks")]
    replies = ((1, CALL), (3, "did it"), (5, "welcome"))
    return [capture(log, history[:length], reply) for length, reply in replies]


async def test_a_turn_is_all_work_on_one_request(log: Log):
    call, result, thanks = await tool_turn(log)
    await rate(log, result, 1.0, scope="turn")
    assert await rewards(log) == {call: 1.0, result: 1.0}
    await rate(log, call, -1.0)
    assert await rewards(log) == {call: -1.0, result: 1.0}
    await rate(log, thanks, 0.5, scope="conversation")
    assert await rewards(log) == {call: -1.0, result: 1.0, thanks: 0.5}


async def test_a_conversation_is_rated_as_far_as_it_went(log: Log):
    first = capture(log, [user("a")], "one")
    await rate(log, first, -1.0, scope="conversation")
    later = capture(log, [user("a"), assistant("one"), user("b")], "two")
    failed: dict[str, Any] = {"chunks": (), "outcome": "failed", "status": None}
    capture(log, [user("a"), assistant("one"), user("c")], **failed)
    assert await rewards(log) == {first: -1.0}
    await rate(log, later, 1.0, scope="conversation")
    assert await rewards(log) == {first: 1.0, later: 1.0}


async def test_a_rating_of_a_turn_is_one_and_its_words_are_of_the_answer_that_it_was_given_to(log: Log):
    call, result, _ = await tool_turn(log)
    said = await rate(log, result, -1.0, scope="turn", comment="too long", weight=3.0)
    rated = await all_rated(log)
    rows = [(each.completion.id, each.weight, each.comment, each.feedback_ids) for each in rated]
    assert rows == [(call, 1.5, None, (said.id,)), (result, 1.5, "too long", (said.id,))]
    assert [(await log.completion(each)).rating for each in (call, result)] == [-1.0, -1.0]
    counts = await log.counts()
    assert (counts["ratings"], counts["bad"], counts["comments"]) == (1, 1, 1)
    await log.undo_feedback(said.id)
    assert await all_rated(log) == []


async def test_a_later_rating_replaces_one_of_the_same_rater_that_is_about_no_more(log: Log):
    call, result, _ = await tool_turn(log)
    narrow = await rate(log, result, -1.0)
    wide = await rate(log, result, 1.0, scope="turn")
    assert (await log.feedback(narrow.id)).superseded_by == wide.id
    assert await rewards(log) == {call: 1.0, result: 1.0}
    await rate(log, result, -0.5)
    assert (await log.feedback(wide.id)).superseded_by is None
    assert await rewards(log) == {call: 1.0, result: -0.5}
    await rate(log, call, 0.5, scope="turn")  # the turn again, at another of its answers
    assert await rewards(log) == {call: 0.5, result: -0.5}
    await rate(log, result, 1.0, scope="turn")
    assert await rewards(log) == {call: 1.0, result: 1.0}


async def test_a_rating_stays_on_its_branch(log: Log):
    """Of a turn asked again, and of a conversation gone on with otherwise, only the branch that is meant is rated."""
    start: list[Message] = [user("hi"), assistant("Hello!")]
    hello = capture(log, start[:1], "Hello!")
    left = capture(log, [*start, user("one")], "1")
    again = capture(log, [*start, user("one")], "first")
    edited = capture(log, [*start, user("two")], "2")
    for target, scope, covered in (
        (again, "turn", {again}),
        (edited, "conversation", {hello, edited}),
        (left, "conversation", {hello, left}),
        (hello, "conversation", {hello}),  # which branch would be meant is not said
    ):
        given_ = await rate(log, target, 1.0, scope=scope)
        assert set(await rewards(log)) == covered
        await log.undo_feedback(given_.id)
    on = capture(log, [*start, user("two"), assistant("2"), user("three")], "3")
    await rate(log, hello, 1.0, scope="conversation")
    assert set(await rewards(log)) == {hello, edited, on}  # the one that was gone on with


async def test_an_idempotency_key_stores_once(log: Log):
    made, other = capture(log, [user("a")]), capture(log, [user("b")])
    draft = FeedbackDraft(made, "completion_id", reward=1.0, idempotency_key="k")
    first, created, _ = await log.add_feedback(draft)
    assert created
    again = FeedbackReceipt(first, created=False)
    assert await log.add_feedback(draft) == again
    assert await log.add_feedback(replace(draft, target="response_id")) == again
    for change in ({"reward": -1.0}, {"completion_id": other}, {"comment": "x"}):
        with pytest.raises(Conflict) as caught:
            await log.add_feedback(replace(draft, **change))
        assert caught.value.details["feedback_id"] == first.id
    assert (await log.add_feedback(replace(draft, rater="bob"))).created
    assert len(await log.feedbacks()) == 2
    # The last answer may be another one by the time that the same is said again.
    last = replace(draft, target="last", idempotency_key="last")
    again = FeedbackReceipt((await log.add_feedback(last)).feedback, created=False)
    assert await log.add_feedback(replace(last, completion_id=other)) == again


# The pure rules

places = [CompletionPlace(f"c{n}", f"c{n - 1}" if n % 4 else None, n % 2 == 0, float(n)) for n in range(8)]
"""Two conversations of two turns of two completions."""
drafts = st.builds(
    FeedbackDraft, st.sampled_from([place.completion_id for place in places]), st.just("rl"),
    reward=st.none() | st.sampled_from([-1.0, -0.5, 0.0, 1.0]),
    scope=st.sampled_from(["completion", "turn", "conversation"]), rater=st.sampled_from(["ann", "bob"]),
    weight=st.sampled_from([0.5, 1.0, 3.0]), source=st.sampled_from(["human", "implicit"]), comment=st.just("c"),
    correction=st.sampled_from([None, "shorter"]),
)  # fmt: skip
feedback = st.lists(st.tuples(drafts, st.floats(7, 9)), max_size=8).map(
    lambda rows: [Feedback(f"fb_{n}", at, "", draft) for n, (draft, at) in enumerate(rows)]
)


@given(feedback)
def test_rewards_stay_between_those_given_and_own_ratings_win(given_feedback: list[Feedback]):
    found = effective(given_feedback, places)
    given_rewards = [each.draft.reward for each in given_feedback if each.draft.reward is not None]
    for completion_id, rating in found.items():
        if rating.reward is not None:
            assert min(given_rewards) - 1e-9 <= rating.reward <= max(given_rewards) + 1e-9
            assert rating.weight > 0
        own = {
            each.draft.rater: each.draft
            for each in given_feedback
            if each.draft.completion_id == completion_id and each.draft.scope == "completion"
            if each.draft.reward is not None
        }
        if own:
            total = sum(draft.weight for draft in own.values())
            assert rating.weight == pytest.approx(total)
            mean = sum(draft.weight * (draft.reward or 0) for draft in own.values()) / total
            assert rating.reward == pytest.approx(mean)


@given(feedback, feedback)
def test_raters_of_a_key_weigh_as_the_weightiest_of_them(one_key: list[Feedback], another: list[Feedback]):
    def with_key(given: list[Feedback], key: str) -> list[Feedback]:
        return [
            replace(each, id=key + each.id, draft=replace(each.draft, given_with=key, scope="completion"))
            for each in given
        ]

    one, two = (effective(with_key(given, key), places) for given, key in ((one_key, "a"), (another, "b")))
    both = effective(with_key(one_key, "a") + with_key(another, "b"), places)
    for name, found in both.items():
        opinions = [each for each in (one.get(name), two.get(name)) if each and each.reward is not None]
        assert all(each.weight <= 3.0 for each in opinions)
        if opinions:
            assert found.weight == sum(each.weight for each in opinions)
            total = sum(each.weight * (each.reward or 0) for each in opinions)
            assert found.reward == pytest.approx(total / found.weight)


def in_turn(*drafts: FeedbackDraft) -> list[Feedback]:
    return [Feedback(f"fb_{n}", float(n) + 9, "conv0", draft) for n, draft in enumerate(drafts)]


def test_invented_raters_turn_no_answer_and_no_scale():
    """250 names that one key made up, on an answer and in the name of a rater with another key."""
    good = FeedbackDraft("c0", "rl", reward=1.0, scale="binary", given_with="admin_key")
    invented = [replace(good, reward=-1.0, rater=f"r{n}", given_with="api_key") for n in range(250)]
    drafts = [good, *invented]
    assert effective(in_turn(*drafts), places)["c0"].reward == 0
    posing = graded(*[1.0, 0.5] * 9, given_with="api_key")
    assert rewards_of(for_training(graded(0.5) + posing, {}))[0] == 0.5, "on its own scale it stays good"


@given(feedback)
def test_the_weights_of_all_that_one_rating_covers_are_no_more_than_its_own(given_feedback: list[Feedback]):
    for each in given_feedback:
        if each.draft.reward is not None:
            covered = effective([each], places)
            assert sum(rating.weight for rating in covered.values()) == pytest.approx(each.draft.weight)
            assert {rating.feedback_ids for rating in covered.values()} == {(each.id,)}


@given(feedback)
def test_what_is_undone_never_counts(given_feedback: list[Feedback]):
    undone = [replace(each, undone_at=1.0) for each in given_feedback]
    assert effective(undone, places) == {}
    assert effective(given_feedback + undone, places) == effective(given_feedback, places)


def test_nothing_is_rated_outside_the_conversation():
    rated = Feedback("fb_1", 9.0, "conv0", FeedbackDraft("c0", "rl", reward=1.0, scope="conversation"))
    found = effective([rated], places)
    assert found == {f"c{n}": Effective(1.0, 0.25, ("fb_1",), None, None, ()) for n in range(4)}


async def test_a_preference_brings_the_worse_reply_where_the_context_is_the_same(log: Log):
    first, second = (capture(log, [user("a")], reply=text) for text in ("one", "two"))
    elsewhere = capture(log, [user("b")], reply="three")
    await rate(log, second, None, preferred_over=first)
    await rate(log, elsewhere, None, preferred_over=first)
    found = {each.completion.id: each.worse for each in await all_rated(log)}
    assert found == {second: ({"role": "assistant", "content": "one"},), elsewhere: ()}


async def test_what_the_user_wrote_next_is_found(log: Log):
    shorter = user([{"type": "text", "text": text} for text in ("shorter ", "please")])
    call, result, thanks = await tool_turn(log)
    alone = capture(log, [user("hi")], "Hello there!")
    asked_again = [user("hi"), assistant("Hello there!"), shorter]
    capture(log, asked_again, "Hello!")
    # The same conversation from its beginning: another branch.
    branch = capture(log, [user("hi"), assistant("Hello there!"), user("thank you")], "Welcome!")
    for each in (call, result, thanks, alone, branch):
        await rate(log, each, -1.0)
    found = {each.completion.id: each.comment for each in await all_rated(log, next_turns=True)}
    assert found == {call: None, result: "thanks", thanks: None, alone: "shorter please", branch: None}
    assert {each.comment for each in await all_rated(log)} == {None}, "only when it is switched on"
    await rate(log, alone, -1.0, comment="wrong")
    await rate(log, result, 1.0)
    kept = {each.completion.id: each.comment for each in await all_rated(log, next_turns=True)}
    assert (kept[alone], kept[result]) == ("wrong", None), "only on bad answers without a comment"


async def test_what_clients_and_agents_say_is_not_what_the_user_said_next(log: Log):
    reminder = user("<system-reminder>\nIt is Monday.\n</system-reminder>")
    compaction = user("CRITICAL: Respond with TEXT ONLY. Do NOT call any tools.\n\nSummarise.")
    memory = system("You are now acting as the managed memory extraction subagent for an agent.")
    talk: list[Message] = [user("hi"), assistant("Hello there!")]
    made = capture(log, talk[:1], "Hello there!")
    capture(log, [*talk, compaction], "A summary.")
    capture(log, [memory, *talk, user("What is to be kept?")], "Nothing.")
    capture(log, [*talk, reminder], "Well?")
    assert await log.next_turn(made) is None
    capture(log, [*talk, reminder, user("shorter"), reminder], "Hello!")
    capture(log, [*talk, user("thank you")], "Welcome!")
    assert await log.next_turn(made) == "shorter"


async def test_what_the_user_said_next_is_found_where_the_client_rewrote_the_history(log: Log):
    made = capture(log, [system("10:00"), user("hi")], "Hello there!")
    capture(log, [system("10:01"), user("hi"), assistant("Hello there!"), user("shorter")], "Hello!")
    assert await log.next_turn(made) == "shorter"


# As training hears it


def graded(*rewards: float | None, scale: str = "likert", rater: str = "ann", **more: Any) -> list[Feedback]:
    drafts = [FeedbackDraft("c0", "rl", reward=r, scale=scale, rater=rater, **more) for r in rewards]
    return [Feedback(f"fb_{rater}_{n}", float(n), "", draft) for n, draft in enumerate(drafts)]


def rewards_of(feedback: list[Feedback]) -> list[float]:
    return [each.draft.reward for each in feedback if each.draft.reward is not None]


def test_few_grades_equal_grades_and_good_or_bad_stay_as_they_are():
    for feedback_ in (
        graded(*[1.0, 0.5] * 3, 1.0),
        graded(*[0.5] * 20),
        graded(*[1.0] * 19, -1.0, scale="binary"),
        graded(*[None] * 9),  # words only
    ):
        assert for_training(feedback_, {}) == feedback_


def test_each_rater_has_an_own_scale_on_which_better_is_told_from_worse():
    kind, harsh = graded(*[1.0, 0.5] * 4), graded(*[-1.0, -0.5] * 4, rater="bob")
    assert rewards_of(for_training(kind + harsh, {})) == [1.0, -1.0] * 4 + [-1.0, 1.0] * 4


def test_what_was_taken_back_says_nothing_of_a_rater():
    taken = [replace(each, undone_at=1.0) for each in graded(*[-1.0] * 20)]
    assert rewards_of(for_training(taken + graded(*[1.0, 0.5] * 4), {}))[-2:] == [1.0, -1.0]


grade = st.sampled_from([-1.0, -0.5, 0.0, 0.5, 1.0]) | st.floats(-1, 1, width=32)
grades = st.lists(grade, min_size=8, max_size=60)


@given(grades)
def test_the_order_of_a_raters_grades_stays_and_they_neither_vanish_nor_all_say_the_same(raw: list[float]):
    found = rewards_of(for_training(graded(*raw), {}))
    assert all(-1 <= reward <= 1 for reward in found)
    pairs = sorted(zip(raw, found, strict=True))
    assert [reward for _, reward in pairs] == sorted(found)
    if found != raw:
        assert min(found) < 0 < max(found)


def test_weights_of_rating_rater_and_source_are_multiplied():
    (found,) = for_training(graded(1.0, weight=2.0, source="implicit"), {"ann": 0.5})
    assert found.draft.weight == pytest.approx(2 * 0.5 * 0.3)
    assert for_training(graded(1.0), {"bob": 3.0})[0].draft.weight == 1
    assert for_training(graded(1.0), {"ann": 0.0}) == []


async def test_training_hears_raters_by_their_weights_and_the_log_shows_what_was_given(log: Log):
    made = capture(log, [user("hi")])
    await rate(log, made, 1.0, rater="ann")
    await rate(log, made, -1.0, rater="bob")
    (rated,) = await all_rated(log, rater_weights={"ann": 3.0})
    assert (rated.reward, rated.weight) == (0.5, 4.0)
    assert (await log.completion(made)).rating == 0
    (only,) = await all_rated(log, rater_weights={"bob": 0})
    assert (only.reward, only.weight) == (1.0, 1.0)
    assert await all_rated(log, rater_weights={"ann": 0, "bob": 0}) == []


async def test_words_without_a_rating_weigh_as_much_as_their_rater_and_source_do(log: Log):
    whole, half, guess, critique = (capture(log, [user(text)]) for text in "abcd")
    worse = capture(log, [user("c")], "worse")
    await rate(log, whole, None, comment="hm", scope="turn")
    await rate(log, half, None, correction="short", weight=0.5)
    await rate(log, guess, None, preferred_over=worse, source="implicit")
    await rate(log, critique, None, comment="long", correction="short", source="judge", rater="judge")
    assert [each.weight for each in await all_rated(log)] == [1.0, 0.5, 0.3, 0.3]


def test_a_judge_is_heard_again_once_the_person_takes_it_back():
    judge = FeedbackDraft("c0", "rl", reward=-1.0, weight=100.0, source="judge", rater="judge")
    person, judged = in_turn(FeedbackDraft("c0", "rl", reward=0.1, weight=0.01), judge)
    assert effective([person, judged], places) == effective([person], places)
    assert effective([replace(person, undone_at=1.0), judged], places)["c0"].reward == -1.0


@given(feedback, feedback)
def test_whatever_judges_say_people_count_the_same(people: list[Feedback], others: list[Feedback]):
    as_judge: dict[str, Any] = {"source": "judge", "rater": "judge"}
    judges = [replace(each, id=f"j{each.id}", draft=replace(each.draft, **as_judge)) for each in others]
    alone, together = effective(people, places), effective([*judges, *people], places)
    assert {name: together[name] for name in alone} == alone
    assert effective([*people, *judges], places) == together


def test_a_judge_is_not_heard_of_an_answer_that_a_person_found_worse_than_another():
    person = FeedbackDraft("c1", "rl", preferred_over="c0")
    judge = FeedbackDraft("c0", "rl", reward=1.0, source="judge", rater="judge")
    given_ = in_turn(judge, person)
    assert effective(given_, places).keys() == {"c1"}
    assert effective(given_[:1], places).keys() == {"c0"}


async def test_what_an_environment_found_and_a_judge_thinks_both_count(log: Log):
    made = capture(log, [user("hi")])
    await rate(log, made, 1.0, source="environment", rater="tests")
    await rate(log, made, -1.0, source="judge", rater="judge")
    (rated,) = await all_rated(log)
    assert rated.weight == pytest.approx(1.3)
    assert rated.reward == pytest.approx(0.7 / 1.3)
