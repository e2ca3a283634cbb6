"""Learning from words, on the real small model."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from burnish.gate.replies import near_empty, on_topic, topics
from burnish.training.backends.base import Sampled
from burnish.training.backends.torch_peft import TorchPeftBackend
from burnish.training.comments import (
    LEAST_TOKENS,
    LONGER,
    MOST_TOKENS,
    POOLED,
    SAMPLES,
    pooled,
    with_comments,
)
from burnish.training.critique import JUDGED, MOST_REVISIONS, UNTAUGHT, lessons_from_comments
from burnish.training.errors import NotTrainable
from burnish.training.job import Hyperparameters, JobDirectory, Sample, TeacherReply, write_lines
from burnish.training.rendering import Rendered
from tests.support.jobs import LONG, TOPICS, run_of, sample
from tests.training.learnt import TOOLS


@pytest.fixture(scope="module")
def backend(weights: Path) -> TorchPeftBackend:
    """Not to be trained."""
    return TorchPeftBackend(weights, None, Hyperparameters(), seed=0)


def criticised(
    number: int, comment: str | None = "too long, one short sentence please", **more: Any
) -> Sample:
    asked = ({"role": "user", "content": f"What is {TOPICS[number].lower()}?"},)
    return sample(number, good=False, comment=comment, messages=asked, **more)


@pytest.fixture(scope="module")
def taught(backend: TorchPeftBackend) -> list[Rendered]:
    samples = [criticised(n, tools=TOOLS) for n in range(4)] + [sample(7, good=True), sample(8, good=False)]
    lessons = lessons_from_comments(run_of(backend, objective="critique"), samples)
    return [reply.tokens for lesson in lessons for reply in lesson.replies if reply.good]


def test_the_model_with_the_comment_is_the_teacher_of_the_model_without_it(backend: TorchPeftBackend) -> None:
    criticism = criticised(1)
    lessons = lessons_from_comments(run_of(backend, objective="critique"), [criticism])
    answers = [lesson for lesson in lessons if lesson.good]
    assert answers
    assert {lesson.loss for lesson in answers} == {"distil"}
    assert {lesson.loss for lesson in lessons if not lesson.good} == {"mis_po"}
    told = backend.renderer.opening(with_comments(criticism.messages, [criticism.comment or ""]))
    replies = [lesson.replies[0] for lesson in answers]
    behind = backend.distributions([Rendered(tuple(told), reply.tokens.reply) for reply in replies], "bare")
    for reply, expected in zip(replies, behind, strict=True):
        assert reply.teacher
        # Other sequences share the batch, in 16 bits.
        likeliest = [row[0] for row in reply.teacher.probabilities]
        assert likeliest == pytest.approx([row[0] for row in expected.probabilities], abs=0.05)


def test_a_comment_goes_to_the_end_of_the_question_and_the_original_stays_as_it_is() -> None:
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "What is rain?"},
        {"role": "assistant", "content": "Water."},
        {"role": "user", "content": [{"type": "text", "text": "And"}, {"type": "text", "text": "snow?"}]},
    ]
    before = deepcopy(messages)
    found = with_comments(messages, ["too long", "shorter!"])
    texts = [message["content"] for message in found]
    assert texts == ["Be kind.", "What is rain?", "Water.", "And\nsnow?\n\n(too long; shorter!)"]
    assert messages == before


def test_the_model_that_was_told_teaches_the_other(backend: TorchPeftBackend, taught: list[Rendered]) -> None:
    taught_to = {tokens.prompt for tokens in taught}
    plain = {tuple(backend.renderer.prompt(criticised(n).messages)) for n in range(4)}
    assert taught_to
    assert taught_to <= plain, "the comment is not in the prompt that is learnt"
    assert len(taught) <= 4 * MOST_REVISIONS


def test_what_is_taught_is_whole_apt_and_shorter(backend: TorchPeftBackend, taught: list[Rendered]) -> None:
    texts = [backend.renderer.text(tokens.reply) for tokens in taught]
    for text, tokens in zip(texts, taught, strict=True):
        assert tokens.reply[-1] in backend.renderer.end_ids
        assert not near_empty(text)
        assert on_topic(text, topics(backend.renderer.text(tokens.prompt)))
    assert fmean(map(len, texts)) < 0.8 * len(LONG)


def test_the_same_seed_pools_the_same_comments() -> None:
    samples = [criticised(n, f"comment {n}") for n in range(6)]
    assert pooled(samples, seed=3) == pooled(samples, seed=3) != pooled(samples, seed=4)
    for number, comments in enumerate(pooled(samples, seed=3).values()):
        assert (len(set(comments)), comments[0]) == (POOLED, f"comment {number}")


CALLS_TOOLS = Path(__file__).parents[1] / "support" / "calls_tools.jinja"
LOOK_IT_UP = "don't guess: call weather for the city"


@pytest.fixture(scope="module")
def calling(weights: Path, tmp_path_factory: pytest.TempPathFactory) -> TorchPeftBackend:
    """The small model with a chat template that writes tools and calls."""
    folder = tmp_path_factory.mktemp("calling")
    for path in weights.iterdir():
        (folder / path.name).symlink_to(path)
    (folder / "chat_template.jinja").unlink(missing_ok=True)
    (folder / "chat_template.jinja").write_text(CALLS_TOOLS.read_text())
    return TorchPeftBackend(folder, None, Hyperparameters(), seed=0)


def called(name: str, arguments: str) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {"content": "", "tool_calls": [{"id": "1", "type": "function", "function": function}]}


def answered_again(
    folder: Path, answers: Sequence[tuple[Sample, Sequence[dict[str, Any]]]], *, cut: str = ""
) -> JobDirectory:
    """A job with the engine's replies to comments; those to ``cut`` have no end."""
    job = JobDirectory(folder)
    replies = [
        TeacherReply(completion_id=said.completion_id, number=number, comments=(str(said.comment),),
                     finished=said.comment != cut, reply={"role": "assistant"} | reply)
        for said, replies in answers
        for number, reply in enumerate(replies)
    ]  # fmt: skip
    write_lines(job.teacher, replies)
    return job


def test_calls_and_texts_of_the_engine_are_taught_with_the_tools(
    calling: TorchPeftBackend, tmp_path: Path
) -> None:
    said = criticised(0, LOOK_IT_UP, tools=TOOLS)
    engines = [
        called("weather", '{"city": "Paris"}'),
        called("tide", '{"city": "Paris"}'),
        {"content": '<tool_call>\n{"name": "weather", "argum'},
        {"content": "I call weather for the city of rain, and don't guess."},
    ]
    run = replace(run_of(calling, objective="critique"), job=answered_again(tmp_path, [(said, engines)]))
    lessons = lessons_from_comments(run, [said])
    plain = tuple(calling.renderer.prompt(said.messages, said.tools))
    assert '"name": "weather"' in calling.renderer.text(plain)
    assert {reply.tokens.prompt for lesson in lessons for reply in lesson.replies} == {plain}
    good, bad = (
        [calling.renderer.text(one.replies[0].tokens.reply) for one in lessons if one.good is is_good]
        for is_good in (True, False)
    )
    assert sorted(good) == [
        '<tool_call>\n{"name": "weather", "arguments": {"city": "Paris"}}\n</tool_call>',
        engines[3]["content"],
    ]
    assert bad == [said.reply["content"]]


THERMOMETER = ({"role": "user", "content": "What is a thermometer used for?"},)
FOLLOWED, IGNORED, NEVER_ENDS = "one line, please", "as we agreed yesterday", "write a book"
SAID = {
    FOLLOWED: (
        "A thermometer is a device used to measure temperature.",
        "A thermometer is a device used to measure temperature, typically with a needle.",
    ),
    IGNORED: (
        "A thermometer is a device used to measure or control temperature. It's a device that uses a temperature "
        "sensor to track temperature, and it's often used in various applications, including home and commercial "
        "heating and air conditioning systems, as well as in various medical settings, such as hospitals.",
        "A thermometer is a device used to measure the temperature of materials or substances. It is often used to "
        "detect changes in temperature, such as when a room is too hot or too cold, which helps in ensuring that "
        "everything in the room remains within safe ranges.",
    ),
    NEVER_ENDS: ("A thermometer is", "Thermometers"),
}
"""What the small model answered, told so."""


@pytest.mark.parametrize("objective", ["critique", "hybrid"])
def test_a_comment_that_the_model_does_not_follow_is_left_out_with_the_reason(
    backend: TorchPeftBackend, tmp_path: Path, objective: str
) -> None:
    said = [
        criticised(n, comment).model_copy(update={"messages": THERMOMETER}) for n, comment in enumerate(SAID)
    ]
    answers = [(one, [{"content": text} for text in SAID[str(one.comment)]]) for one in said]
    run = replace(run_of(backend, objective=objective), job=answered_again(tmp_path, answers, cut=NEVER_ENDS))
    lessons = lessons_from_comments(run, said)
    taught = {backend.renderer.text(one.replies[0].tokens.reply) for one in lessons if one.good}
    assert taught and taught <= set(SAID[FOLLOWED])
    no_answer, not_followed, _ = UNTAUGHT
    assert run.left_out.counts == {not_followed: 1, no_answer: 1}
    named = {"cmpl_1": not_followed, "cmpl_2": no_answer}
    assert run.left_out.answers == (named if objective == "critique" else {}), "its rating teaches"


BRIEF = {
    "What is a ladder used for?": "A ladder is used to climb to high places.",
    "What is rain?": "Rain is water that falls from clouds.",
    "What is bread made of?": "Bread is made of flour, water and yeast.",
    "Why do birds sing?": "Birds sing to attract mates.",
}


@pytest.mark.parametrize(
    ("comment", "is_followed"),
    [("keep it short", True), (IGNORED, False), ("hm, not quite", False), ("asdf", False)],
)
def test_a_comment_is_followed_if_it_explains_the_answers_to_others(
    backend: TorchPeftBackend, tmp_path: Path, comment: str, is_followed: bool
) -> None:
    others = [
        criticised(n, FOLLOWED).model_copy(update={"messages": ({"role": "user", "content": question},)})
        for n, question in enumerate(BRIEF)
    ]
    own = criticised(9, comment).model_copy(update={"messages": THERMOMETER})
    answers = [(one, [{"content": text}]) for one, text in zip(others, BRIEF.values(), strict=True)]
    answers += [(own, [{"content": text} for text in SAID[IGNORED]])]  # by themselves these show nothing
    run = replace(run_of(backend, objective="critique"), job=answered_again(tmp_path, answers))
    lessons_from_comments(run, [*others, own])
    assert run.left_out.answers == ({} if is_followed else {"cmpl_9": UNTAUGHT[1]})


def test_one_wording_for_all_is_judged_by_the_first_of_its_answers(
    backend: TorchPeftBackend, tmp_path: Path
) -> None:
    """Nobody else says it, and the model doesn't always follow it."""
    criticisms = [
        criticised(n, FOLLOWED).model_copy(update={"messages": ({"role": "user", "content": question},)})
        for n, question in enumerate(BRIEF)
    ]
    ignored = [
        criticised(0, FOLLOWED).model_copy(update={"messages": THERMOMETER, "completion_id": f"ignored_{n}"})
        for n in range(JUDGED)
    ]
    answers = [(one, [{"content": text}] * 2) for one, text in zip(criticisms, BRIEF.values(), strict=True)]
    answers += [(one, [{"content": SAID[IGNORED][0]}]) for one in ignored]
    run = replace(run_of(backend, objective="critique"), job=answered_again(tmp_path, answers))
    lessons_from_comments(run, [*criticisms, *ignored])
    assert not {one.completion_id for one in criticisms} & run.left_out.answers.keys()


class Drawn:
    """Takes the tries of a run."""

    def __init__(self) -> None:
        self.replies: dict[int, Sampled] = {}

    def drawn(self) -> dict[int, Sampled]:
        return {}

    def keep(self, drawn: dict[int, Sampled]) -> None:
        self.replies = drawn


def test_a_try_is_little_longer_than_the_answers_of_the_log(tiny_weights: Path) -> None:
    tiny, tries = TorchPeftBackend(tiny_weights, None, Hyperparameters(), seed=0), Drawn()
    run = replace(run_of(tiny, objective="critique"), tries=lambda seed: tries)
    replies = ("Rain.", "Bread is made of flour and water. " * 12)
    samples = [
        criticised(n).model_copy(update={"reply": {"role": "assistant", "content": text}})
        for n, text in enumerate(replies)
    ]
    with suppress(NotTrainable):  # it babbles
        lessons_from_comments(run, samples)
    longest = [max(len(tries.replies[SAMPLES * n + k].ids) for k in range(SAMPLES)) for n in range(2)]
    middle = len(tiny.renderer.plain(replies[1])) + 1
    assert LEAST_TOKENS < middle * LONGER < MOST_TOKENS
    assert LEAST_TOKENS < longest[0] <= middle, "a comment may ask for more than one word"
    assert middle < longest[1] <= round(middle * LONGER)


def test_a_comment_under_a_prompt_that_is_too_long_for_the_teacher_is_left_out(tiny_weights: Path) -> None:
    """With the comments in it; neither the prompt without them nor the criticised reply is cut instead."""
    tiny = TorchPeftBackend(tiny_weights, None, Hyperparameters(), seed=0)
    one = criticised(0, comment="shorter, " * 40)
    short = len(tiny.renderer.conversation(one.messages, (), one.reply, True, 999).ids)
    config = Hyperparameters(max_tokens=short + 20)
    run = run_of(tiny, objective="critique", hyperparameters=config)
    with pytest.raises(NotTrainable, match="no comment is left"):
        lessons_from_comments(run, [one])
    assert [why.split(", more")[1] for why in run.left_out.counts] == [
        f" than train.advanced.max_tokens ({config.max_tokens})"
    ]
