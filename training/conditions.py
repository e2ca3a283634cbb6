"""Comments with a condition, such as "too long when I only ask for a command": which other prompts don't meet it.

Asked whether a prompt meets a condition, a small model answers by chance. But a question that meets it is likelier
behind the comment (docs/decisions.md). A question q fits a comment c by

    log π(q | "The user said: c For example, the user asked:") − log π(q | the same, with "…" for c),

summed over its tokens. The criticised questions show how well one fits that meets the condition.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean

from burnish.gate.replies import last_question
from burnish.training.comments import conditional
from burnish.training.dataset import Run
from burnish.training.job import Sample, UnratedPrompt
from burnish.training.rendering import Rendered

MEMORY = 'The user said: "{}" For example, the user asked: '
NOTHING = "…"
COMMENTS = 4
"""Comments by which prompts are judged, at most: each is tried on all prompts."""
EXAMPLES = 4
"""Criticised questions of a comment that show what meets it, at most."""
LEAST_GAP = 2.0
"""Nats by which criticised questions fit better than others. Below it the model doesn't see a condition."""
LONGEST_QUESTION = 64
"""Tokens of a question that are read."""
FOR_ALL = "the comments count for all prompts, whatever condition they have: {}"
"""A note must not quote: it stays when the comment is erased."""
MIXED = "others of this run have none"
NOTHING_UNRATED = "the log has no unrated prompts that could show what else you ask"
NOT_SEEN = "the model doesn't tell the criticised questions from your other ones by them"


def unmet(run: Run, criticised: Sequence[Sample], unrated: Sequence[UnratedPrompt]) -> list[UnratedPrompt]:
    """Return the unrated prompts that don't meet the conditions of the comments.

    Empty if the comments are about all prompts. If one of them has a condition nevertheless, the run gets a note.
    """
    by_comment = defaultdict[str, list[str]](list)
    for sample in criticised:
        by_comment[sample.comment or ""].append(last_question(sample.messages))
    if not any(map(conditional, by_comment)):
        return []
    if not all(map(conditional, by_comment)):
        return _for_all(run, MIXED)
    if not unrated:
        return _for_all(run, NOTHING_UNRATED)
    dice = random.Random(run.spec.seed)
    comments = dice.sample(sorted(by_comment), min(COMMENTS, len(by_comment)))
    questions = [last_question(prompt.messages) for prompt in unrated]
    own = fmean(fmean(_fits(run, comment, by_comment[comment][:EXAMPLES])) for comment in comments)
    fits = [_fits(run, comment, questions) for comment in comments]
    mean = fmean(fmean(of_comment) for of_comment in fits)
    if own - mean < LEAST_GAP:
        return _for_all(run, NOT_SEEN)
    middle = (own + mean) / 2
    return [prompt for prompt, *scores in zip(unrated, *fits, strict=True) if max(scores) < middle]


def _for_all(run: Run, why: str) -> list[UnratedPrompt]:
    run.left_out.notes.append(FOR_ALL.format(why))
    return []


def _fits(run: Run, comment: str, questions: Sequence[str]) -> list[float]:
    plain = run.backend.renderer.plain
    replies = [tuple(plain(question)[:LONGEST_QUESTION]) for question in questions]
    prompts = [tuple(plain(MEMORY.format(words))) for words in (comment, NOTHING)]
    scores = run.backend.logps([Rendered(prompt, reply) for prompt in prompts for reply in replies], "bare")
    sums = [float(sum(score)) for score in scores]
    pairs = zip(sums[: len(replies)], sums[len(replies) :], strict=True)
    return [score - control for score, control in pairs]
