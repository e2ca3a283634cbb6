from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from burnish.adapters.manifest import Manifest, learnt_by
from burnish.learner.export import ChosenRating, Policies, chosen, hold_out, left_out, prompt_read, sample
from burnish.proxy.log import Rating
from burnish.proxy.log.faults import FAULTS
from burnish.proxy.log.ratings import Effective
from burnish.proxy.records import Fault, RatedCompletion, Tokens
from burnish.training.job import PromptRead
from tests.support import records
from tests.support.records import changed

PLAIN = changed(
    records.PLAIN,
    conversation_id="conv_1",
    finish_reason="stop",
    adapter_version=0,
    messages=({"role": "user", "content": "Hi"},),
    reply={"role": "assistant", "content": "Hello."},
)


POLICIES = Policies("sha256:ours", (2,))


def rated(conversation: str, reward: float, number: int = 0, **changes: Any) -> Rating:
    served = PLAIN.served._replace(**changes)
    effective = Effective(reward, 1.0, (f"fb_{conversation}_{number}",), None, None, ())
    return Rating(f"cmpl_{conversation}_{number}", conversation, served, False, effective, (), None)


def many(good: int, bad: int) -> list[Rating]:
    return [rated(f"g{i}", 1.0) for i in range(good)] + [rated(f"b{i}", -1.0) for i in range(bad)]


def ready(rated: list[Rating], learnt: Collection[str] = ()) -> list[ChosenRating]:
    return chosen(rated, learnt, POLICIES, learnable=False)


def learnt_from(rated: list[Rating], learnt: Collection[str] = ()) -> list[str]:
    return [each.rating.rating_id for each in ready(rated, learnt)]


def manifest(parent: int, *feedback_ids: str) -> Manifest:
    fields: dict[str, Any] = {"parent": parent, "feedback_ids": feedback_ids}
    return Manifest.model_construct(**fields)


@pytest.mark.parametrize(
    ("good", "bad", "held_good", "held_bad", "learnable"),
    [
        (0, 0, 0, 0, False),
        (1, 1, 0, 0, False),
        (2, 2, 0, 0, False),
        (8, 5, 0, 0, False),
        (6, 6, 3, 3, False),
        (8, 24, 3, 6, False),
        (16, 24, 4, 6, False),
        (13, 27, 3, 7, False),
        (40, 0, 0, 0, False),
        (100, 100, 25, 25, False),
        # Where new replies can be judged, a rare class is spared.
        (7, 25, 0, 6, True),
        (12, 20, 3, 5, True),
        (25, 7, 6, 0, True),
        (5, 6, 0, 0, True),
    ],
)
def test_how_many_are_held_out(good: int, bad: int, held_good: int, held_bad: int, learnable: bool) -> None:
    held = hold_out(many(good, bad), learnable=learnable)
    assert (sum(c[0] == "g" for c in held), sum(c[0] == "b" for c in held)) == (held_good, held_bad)


rating_lists = st.lists(st.tuples(st.integers(0, 12), st.sampled_from([1.0, 0.5, 0.0, -1.0])), max_size=60)


@given(pairs=rating_lists, learnable=st.booleans())
def test_half_of_each_class_is_left_and_ids_decide(pairs: list[tuple[int, float]], learnable: bool) -> None:
    all_rated = [rated(f"c{c}", reward, i) for i, (c, reward) in enumerate(pairs)]
    held = hold_out(all_rated, learnable=learnable)
    assert held == hold_out(all_rated[::-1], learnable=learnable)
    for sign in (1, -1):
        with_class = {each.conversation_id for each in all_rated if each.reward * sign > 0}
        assert len(held & with_class) <= len(with_class) / 2


@given(first=st.integers(4, 40), more=st.integers(0, 40))
def test_more_ratings_never_swap_one_old_conversation_for_another(first: int, more: int) -> None:
    old = {each.conversation_id for each in many(first, first)}
    before, after = hold_out(many(first, first)), hold_out(many(first + more, first + more))
    for kind in "gb":
        held_then = {c for c in before if c[0] == kind}
        held_now = {c for c in after & old if c[0] == kind}
        assert held_now <= held_then or held_now >= held_then


def test_conversations_are_held_out_whole() -> None:
    talk = [rated(f"c{c}", 1.0 if turn % 2 else -1.0, turn) for c in range(12) for turn in range(4)]
    sides = {(each.rating.conversation_id, each.held_out) for each in ready(talk)}
    assert len(sides) == 12
    assert sum(held_out for _, held_out in sides) == 3


@pytest.mark.parametrize("fault", list(FAULTS))
def test_answers_with_a_fault_are_not_learnt_from_and_counted(fault: Fault) -> None:
    found = [replace(rated("c", 1.0), fault=fault), rated("d", 1.0)]
    assert learnt_from(found) == ["fb_d_0"]
    assert left_out(found, ()) == {FAULTS[fault]: 1}
    assert left_out(found, ("fb_c_0",)) == {}


def test_a_sample_carries_what_the_trainer_needs() -> None:
    tools = [{"type": "function", "function": {"name": "f"}}]
    completion = changed(PLAIN, finish_reason="length", params={"tools": tools, "temperature": 1})
    one = RatedCompletion(completion, -0.5, 2.0, ("fb_1",), "too long", None)
    made = sample(one, ChosenRating(rated("c", -0.5), behaviour_version=2, held_out=False), POLICIES)
    assert made.messages == PLAIN.messages
    assert (made.reply, made.tools) == (PLAIN.reply, tuple(tools))
    assert (made.reward, made.weight, made.comment) == (-0.5, 2.0, "too long")
    assert (made.finished, made.behaviour_version, made.held_out) == (False, 2, False)
    assert made.feedback_ids == one.feedback_ids


@pytest.mark.parametrize(
    ("version", "changes", "behaviour"),
    [
        *((version, {}, version) for version in (0, 2)),
        *((version, {"base_digest": "sha256:ours"}, version) for version in (0, 2)),
        *((version, {"base_digest": "sha256:other"}, None) for version in (0, 2)),
        (3, {}, None),
        (None, {}, None),
        *((version, {"imported_from": "burnish"}, None) for version in (0, 2)),
    ],
)
def test_replies_of_other_models_bases_and_prompts_are_off_policy(
    version: int | None, changes: dict[str, Any], behaviour: int | None
) -> None:
    (made,) = ready([rated("c", 1.0, adapter_version=version, **changes)])
    assert made.behaviour_version == behaviour


def test_an_answer_to_a_prompt_with_added_instructions_is_off_policy() -> None:
    (made,) = ready([replace(rated("c", 1.0, adapter_version=2), instructed=True)])
    assert made.behaviour_version is None


def test_what_the_chain_of_the_live_version_learnt_is_not_learnt_again() -> None:
    manifests = {1: manifest(0, "fb_a_0"), 2: manifest(1, "fb_b_0"), 3: manifest(1, "fb_c_0")}
    assert learnt_by(2, manifests) == {"fb_a_0", "fb_b_0"}
    assert learnt_by(0, manifests) == frozenset()
    assert learnt_by(9, manifests) == frozenset()
    assert learnt_from([rated(c, 1.0) for c in "abc"], learnt_by(2, manifests)) == ["fb_c_0"]


def test_a_changed_rating_is_ready_again_and_a_later_comment_is_not() -> None:
    first = rated("c", 1.0)
    commented = replace(first, effective=replace(first.effective, feedback_ids=("fb_c_0", "fb_comment")))
    assert learnt_from([commented], {"fb_c_0"}) == []
    assert learnt_from([rated("c", -1.0, 1)], {"fb_c_0"}) == ["fb_c_1"]


def test_a_conversation_that_was_learnt_from_is_never_held_out() -> None:
    fresh = [rated(f"c{i}", sign, 1) for i in range(20) for sign in (1.0, -1.0)]
    learnt = [rated(f"c{i}", 1.0, 0) for i in range(20)]
    assert any(each.held_out for each in ready(fresh))
    ids = {each.rating_id for each in learnt}
    assert not any(each.held_out for each in ready(fresh + learnt, ids))


OURS = changed(PLAIN, base_digest="sha256:ours", prompt_tokens=7)


@pytest.mark.parametrize(
    ("changes", "read"),
    [
        ({}, PromptRead(format="chat", tokens=7)),
        ({"prompt_tokens": None}, PromptRead(format="chat")),
        ({"adapter_version": 9}, PromptRead(format="chat", tokens=7)),
        ({"base_digest": None}, PromptRead(format="chat")),
        ({"surface": "messages", "in_chat": True}, PromptRead(format="messages in chat", tokens=7)),
        ({"base_digest": "sha256:other"}, None),
        ({"adapter_version": None}, None),
        ({"imported_from": "burnish"}, None),
    ],
)
def test_what_the_engine_told_of_a_prompt_is_known_of_our_model_only(
    changes: dict[str, Any], read: PromptRead | None
) -> None:
    assert prompt_read(changed(OURS, **changes), POLICIES, None) == read


@pytest.mark.parametrize(
    ("surface", "context", "head"),
    [
        ("chat", [], "More."),
        ("chat", [{"role": "system", "content": "Brief."}], "Brief.\n\nMore."),
        ("responses", [], "More."),
        ("messages", [], "More."),
        ("messages", [{"role": "system", "content": "Brief."}], None),
        ("gemini", [{"role": "system", "content": "Brief."}], None),
    ],
)
def test_instructions_were_in_the_prompt_that_the_engine_read(
    surface: str, context: list[dict[str, Any]], head: str | None
) -> None:
    asked = (*context, {"role": "user", "content": "Hi"})
    read = prompt_read(changed(OURS, surface=surface, instructions="More.", messages=asked), POLICIES, None)
    assert read is not None
    if head is None:
        assert read == PromptRead(format=surface), (
            "a single block is logged as a text, so the join isn't known"
        )
    else:
        assert read.messages == ({"role": "system", "content": head}, asked[-1])


def test_ids_that_were_captured_say_more_than_a_count() -> None:
    read = prompt_read(OURS, POLICIES, Tokens((1, 2), (3,), (0.0,)))
    assert read == PromptRead(format="chat", tokens=7, ids=(1, 2))
