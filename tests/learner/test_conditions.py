"""A run on a comment with a condition takes unrated prompts along, which it may hold as they are."""

from __future__ import annotations

from burnish.learner.stopped import quoted
from tests.learner.test_plan import Rated
from tests.learner.test_unfit_comments import asked, said

UNRATED = 6


async def test_half_of_the_unrated_prompts_go_with_a_comment_that_has_a_condition(burnish: Rated) -> None:
    await criticised(burnish, "too long when I only ask for a command")
    names = [await asked(burnish, question=f"Unrated {number}?") for number in range(UNRATED)]
    job = await burnish.job()
    kept = {prompt.completion_id: prompt for prompt in job.unrated()}
    assert len(kept) == UNRATED // 2, "the gate asks the rest"
    assert kept.keys() <= {*names}
    assert all(prompt.messages[-1]["content"].startswith("Unrated") for prompt in kept.values())
    lesson_ids, _ = quoted(job)
    assert kept.keys() < lesson_ids, "if one is erased, so is the job"


async def test_without_a_condition_no_other_prompt_is_needed(burnish: Rated) -> None:
    await criticised(burnish, "too long")
    await asked(burnish, question="Unrated?")
    assert (await burnish.job()).unrated() == []


async def criticised(burnish: Rated, comment: str) -> None:
    for number in range(4):
        name = await asked(burnish, question=f"Which command does thing {number}?")
        assert (await said(burnish, name, comment))[:2] == (201, True)
