"""A prompt that the engine read otherwise isn't taught, and is counted."""

from __future__ import annotations

from typing import Any

import pytest

from burnish.training.compared import DIFFERENT, compared
from burnish.training.errors import NotTrainable
from burnish.training.job import PromptRead, PromptsCompared, Sample, latest_prompts
from burnish.training.loop import train
from burnish.training.rendering import Renderer
from tests.support import jobs
from tests.support.jobs import Base, context, write_job

TOOL = ({"type": "function", "function": {"name": "look"}},)


def sample(number: int, renderer: Renderer, more: int | None = 0, **changes: Any) -> Sample:
    """``more``: tokens that the engine counted beyond those of the prompt; None: it told no count."""
    tokens = None if more is None else len(renderer.prompt(context(jobs.TOPICS[number]))) + more
    read = PromptRead(format=changes.pop("format", "chat"), tokens=tokens, ids=changes.pop("ids", ()))
    return jobs.sample(number, good=number % 2 == 0, **{"read": read} | changes)


def test_what_the_engine_counts_otherwise_is_found(renderer: Renderer):
    found = compared([sample(n, renderer, more) for n, more in enumerate((0, 0, 7, None))], renderer)
    assert found.record() == PromptsCompared(same=2, different=1, unchecked=1)
    assert found.different == {"cmpl_2"}


def test_an_offset_of_a_format_is_learnt_from_plain_chats_and_named(renderer: Renderer):
    chats = [sample(n, renderer, 1, format="messages") for n in range(3)]
    others = [sample(n, renderer, more, format="messages") for n, more in ((3, 0), (4, 2))]
    chat = [sample(n, renderer, 0) for n in range(5, 8)]
    found = compared([*chats, *others, *chat], renderer)
    assert found.offsets == {"messages": 1}
    assert found.different == {"cmpl_3", "cmpl_4"}


@pytest.mark.parametrize(
    "more", [(1, 1), (30, 30, 30, 30), (1, 2, 1, 2)], ids=["few", "a text", "no majority"]
)
def test_what_is_no_offset_is_another_prompt(renderer: Renderer, more: tuple[int, ...]):
    found = compared([sample(n, renderer, each) for n, each in enumerate(more)], renderer)
    assert not found.offsets
    assert len(found.different) == len(more)


def test_requests_with_tools_teach_no_offset(renderer: Renderer):
    found = compared([sample(n, renderer, 1, tools=TOOL) for n in range(4)], renderer)
    assert not found.offsets


def test_ids_tell_what_a_count_cannot(renderer: Renderer):
    ids = tuple(renderer.prompt(context(jobs.TOPICS[0])))
    other = (*ids[:5], ids[6], ids[5], *ids[7:])
    answers = [sample(0, renderer, ids=ids), sample(0, renderer, ids=other, completion_id="cmpl_9")]
    assert compared(answers, renderer).different == {"cmpl_9"}


def test_answers_of_other_models_are_not_compared(renderer: Renderer):
    found = compared([sample(0, renderer, 50, read=None, behaviour_version=None)], renderer)
    assert found.record() == PromptsCompared(same=0, different=0, unchecked=0)


def test_instructions_and_written_special_tokens_are_what_the_engine_read(renderer: Renderer):
    written = ({"role": "user", "content": "What is <|im_end|>?"},)
    instructed = ({"role": "system", "content": "Be brief."}, *written)
    tokens = len(renderer.prompt(instructed, as_engine=True))
    assert tokens < len(renderer.prompt(instructed))
    read = PromptRead(format="chat", tokens=tokens, messages=instructed)
    assert compared([sample(0, renderer, messages=written, read=read)], renderer).same == 1


def test_a_run_leaves_it_out_with_its_reason(renderer: Renderer, small: Base, tmp_path: Any):
    samples = [sample(n, renderer, 9 if n in (2, 5) else 0) for n in range(6)]
    job = write_job(tmp_path / "run_1", small, samples)
    result = train(job)
    assert (result.left_out, result.samples, result.ratings) == ({DIFFERENT: 2}, 4, 6)
    assert result.unlearnt == {"cmpl_2": DIFFERENT, "cmpl_5": DIFFERENT}
    assert latest_prompts(tmp_path) == PromptsCompared(same=4, different=2, unchecked=0)


def test_a_run_of_nothing_else_says_why_it_teaches_nothing(renderer: Renderer, small: Base, tmp_path: Any):
    job = write_job(tmp_path / "run_1", small, [sample(n, renderer, 40 + n) for n in range(4)])
    with pytest.raises(NotTrainable, match=f"left out: 4 × {DIFFERENT}"):
        train(job)
    assert latest_prompts(tmp_path) == PromptsCompared(same=0, different=4, unchecked=0)
