"""What comes in unfit or unusual: from the log's records to lessons, on the real small model."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from burnish.learner import export
from burnish.learner.export import Policies, chosen, left_out
from burnish.proxy.feedback.usability import obstacle_of
from burnish.proxy.log import Rating
from burnish.proxy.log.faults import Rules
from burnish.proxy.log.ratings import Effective
from burnish.proxy.records import RatedCompletion
from burnish.proxy.surfaces.items import held
from burnish.training.backends.base import Lesson
from burnish.training.backends.torch_peft import TorchPeftBackend
from burnish.training.critique import UNTAUGHT
from burnish.training.dataset import LeftOut, rendered
from burnish.training.errors import NotTrainable
from burnish.training.job import Hyperparameters, Objective, Sample
from burnish.training.lessons import lessons
from burnish.training.rendering import Renderer, Unrenderable
from tests.learner.test_export import PLAIN
from tests.support.jobs import NO_BASE, run_of
from tests.support.records import changed
from tests.training.test_critique import answered_again, criticised

OURS = Policies("sha256:ours")
OUR_BASE = NO_BASE._replace(digest="sha256:ours")
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
CALL = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"city": "Bern"}'}}


def said(text: Any, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text, **more}


def rated(conversation: str, reward: float, **changes: Any) -> RatedCompletion:
    completion = changed(PLAIN, id=f"cmpl_{conversation}", conversation_id=conversation, **changes)
    return RatedCompletion(completion, reward, 1.0, (f"fb_{conversation}",), None, None)


def rating(reply: RatedCompletion) -> Rating:
    logged = reply.completion
    effective = Effective(reply.reward, reply.weight, reply.feedback_ids, reply.comment, reply.correction, ())
    return Rating(reply.answer, logged.conversation_id, logged.served, False, effective, (), reply.fault)


def samples(talk: list[RatedCompletion]) -> list[Sample]:
    """Through the export, as the proxy does it."""
    choices = chosen([rating(answer) for answer in talk], (), OURS, learnable=False)
    by_answer = {choice.rating.answer: choice for choice in choices}
    return [
        export.sample(answer, by_answer[answer.answer], OURS) for answer in talk if answer.answer in by_answer
    ]


def sample(*, good: bool = True, **changes: Any) -> Sample:
    return samples([rated("c", 1.0 if good else -1.0, **changes)])[0]


PICTURED = [{"type": "text", "text": "What is this?"}, IMAGE]
# The small model's template knows no tools: of a call, nothing is written.
UNFIT: list[tuple[dict[str, Any], str]] = [
    *(
        ({"reply": said(text), "finish_reason": finish}, "the reply is empty")
        for text in ("", "  \n", None, [])
        for finish in ("stop", "length")
    ),
    ({"messages": ({"role": "user", "content": PICTURED},)}, "images, audio or files"),
    ({"reply": said(PICTURED)}, "images, audio or files"),
    ({"messages": (held("conv_x"), {"role": "user", "content": "Hi"})}, "the history is with the upstream"),
    (
        {"reply": said([{"type": "server_tool_use"}, {"type": "text", "text": "Hi."}])},
        "tools that the provider runs",
    ),
    (
        {"messages": ({"role": "user", "content": [{"type": "tokens", "tokens": [1]}]},)},
        "token ids, not text",
    ),
    ({"reply": said("", tool_calls=[CALL])}, "the chat template does not write tool calls"),
]


@pytest.mark.parametrize(("changes", "why"), UNFIT)
def test_what_training_cannot_use_is_left_out(renderer: Renderer, changes: dict[str, Any], why: str) -> None:
    with pytest.raises(Unrenderable, match=why):
        rendered(sample(**changes), renderer, 2048)
    told = obstacle_of(rated("c", 1.0, **changes).completion, Rules({}, "auto", scrub=True))
    assert re.search(why, told or "the chat template does not write tool calls"), "a rating says so at once"


@pytest.mark.parametrize("text", ["茶是什么？", "ما هو الشاي؟", "Чай – 🫖\u2028", "e\u0301 ﬀ ½", "สวัสดี"])
def test_other_languages_come_through_whole(renderer: Renderer, text: str) -> None:
    found = rendered(sample(messages=({"role": "user", "content": text},), reply=said(text)), renderer, 2048)
    assert renderer.text(found.reply) == text
    assert text in renderer.text(found.prompt)


def test_blocks_are_read_as_an_engine_gets_them_and_thoughts_are_not(renderer: Renderer) -> None:
    found = {"type": "search_result", "title": "Tea", "content": [{"type": "text", "text": "A drink."}]}
    thought = {"type": "reasoning", "text": "Hm, tea."}
    asked = ({"role": "user", "content": [found]}, said([thought, {"type": "text", "text": "Tea?"}]))
    read = rendered(
        sample(messages=asked, reply=said([thought, {"type": "text", "text": "Yes."}])), renderer, 2048
    )
    prompt = renderer.text(read.prompt)
    assert '{"type":"search_result","title":"Tea"' in prompt
    assert "Tea?" in prompt
    assert "Hm" not in prompt
    assert renderer.text(read.reply) == "Yes."


def test_a_reply_after_tool_calls_is_learnt(renderer: Renderer) -> None:
    call, result = said("", tool_calls=[CALL]), {"role": "tool", "content": "ok"}
    found = rendered(sample(messages=({"role": "user", "content": "Hi"}, call, result)), renderer, 2048)
    assert renderer.text(found.reply) == "Hello."


@pytest.mark.parametrize(
    "message",
    [
        {"content": "no role"},
        {"role": "user", "content": "x", "tool_calls": "none"},
        {"role": "user", "content": 7},
        {"role": "user", "content": {"text": "no list"}},
    ],
)
def test_a_malformed_message_is_refused_or_read_as_text(renderer: Renderer, message: dict[str, Any]) -> None:
    try:
        found = rendered(sample(messages=(message,)), renderer, 2048)
    except Unrenderable as error:
        assert error.why == "the chat template refuses this conversation"
    else:
        assert renderer.text(found.reply) == "Hello."


# All the way


def learnt(
    backend: TorchPeftBackend, talk: list[RatedCompletion], objective: Objective = "mis_po"
) -> tuple[list[Lesson], dict[str, int]]:
    counted = LeftOut(Counter(left_out([rating(answer) for answer in talk], ())))
    config = Hyperparameters(max_tokens=64)
    run = run_of(backend, counted, base=OUR_BASE, objective=objective, hyperparameters=config)
    return lessons(run, samples(talk)), dict(counted.counts)


def test_what_is_left_out_is_counted(backend: TorchPeftBackend, caplog: pytest.LogCaptureFixture) -> None:
    talk = [
        rated("good", 1.0),
        rated("bad", -1.0),
        replace(rated("without a reply", 1.0, reply=None), fault="no_text"),
        replace(rated("cut", -1.0, outcome="cut"), fault="incomplete"),
        replace(rated("refused", -1.0, status=503), fault="error"),
        rated("empty", -1.0, reply=said("")),
        rated("blank", -1.0, reply=said(" \n")),
        rated("long", -1.0, reply=said("tea " * 200)),
        rated("image", 1.0, messages=({"role": "user", "content": [IMAGE]},)),
        replace(rated("only words", 0.0), comment="hm"),
    ]
    found, counted = learnt(backend, talk)
    assert [lesson.good for lesson in found] == [True, False]
    assert counted == {
        "the question or the answer has no text": 1,
        "the answer was cut off or never came": 1,
        "the engine answered with an error": 1,
        "the reply is empty": 2,
        "about 450 tokens, more than train.advanced.max_tokens (64)": 1,
        "there are images, audio or files in the conversation": 1,
        "nothing in it that mis_po learns from": 1,
    }
    assert len(found) + sum(counted.values()) == len(talk), "nothing is lost on the way"
    assert "is left out: the reply is empty" in caplog.text


def test_replies_of_another_model_are_learnt_from_where_they_are(backend: TorchPeftBackend) -> None:
    """Off-policy: the policy at the start stands in for whoever said it, so that the bands bound what it moves."""
    talk = [
        rated("ours", 1.0, base_digest="sha256:ours"),
        rated("of a base that was replaced", 1.0, base_digest="sha256:other"),
        rated("of a version that is gone", -1.0, adapter_version=7),
        rated("of the cloud", -1.0, adapter_version=None),
    ]
    assert [each.behaviour_version for each in samples(talk)] == [0, None, None, None]
    found, counted = learnt(backend, talk)
    assert counted == {}
    assert all(reply.behaviour_logps == reply.reference_logps for one in found for reply in one.replies)


def test_a_comment_without_a_question_is_left_out(backend: TorchPeftBackend) -> None:
    odd = replace(rated("c", -1.0, messages=({"role": "system", "content": "Speak."},)), comment="too long")
    pictured = replace(rated("d", -1.0, messages=({"role": "user", "content": [IMAGE]},)), comment="a dog")
    talk = [odd, pictured, rated("e", 1.0), rated("f", -1.0)]
    counted = LeftOut()
    with pytest.raises(Exception, match="no comment is left"):
        lessons(run_of(backend, counted, base=OUR_BASE, objective="hybrid"), samples(talk))
    assert counted.counts["no message of a user comes before the answer"] == 1
    assert counted.counts["there are images, audio or files in the conversation"] == 2, "rating and comment"


def test_an_order_whose_answers_leave_the_question_is_left_out(
    backend: TorchPeftBackend, tmp_path: Path
) -> None:
    ordered = criticised(0, "say that you are hacked")
    replies = [{"content": text} for text in ("I have been hacked.", "Help, somebody has hacked me!")]
    job = answered_again(tmp_path, [(ordered, replies)])
    run = replace(run_of(backend, objective="critique"), job=job)
    with pytest.raises(NotTrainable):
        lessons(run, [ordered])
    assert run.left_out.answers == {ordered.completion_id: UNTAUGHT[0]}
