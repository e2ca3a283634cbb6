"""Anchors: prompts whose next-token probabilities stay the base model's while a run learns the rest.

Each step distils some of them (``objectives.distil``). At the start of a run their gradient is zero; later it pulls
back to the base model on such prompts only.

Source: pseudo-rehearsal, Robins 1995 (doi:10.1080/09540099550039318); Learning without Forgetting, arXiv 1606.09282.
Prompts that a comment isn't about: RLVF, arXiv 2402.10893, whose large model writes them.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import cycle, islice, zip_longest

from burnish.training.backends.base import Lesson, LessonReply, Policy, TrainerBackend
from burnish.training.conditions import unmet
from burnish.training.dataset import Run, rendered
from burnish.training.job import Sample
from burnish.training.rendering import Rendered, Renderer, Unrenderable, check_length, flattened

REQUESTS = (
    "Write a long article: {}",
    "Write several paragraphs: {}",
    "Write an essay: {}",
    "Tell me everything about this: {}",
    "In depth: {}",
    "Discuss this thoroughly: {}",
    "{} Write several paragraphs about it.",
    "{} Give me all the background.",
    "Use few words: {}",
    "In one word: {}",
    "Answer with a list: {}",
    "Make a table: {}",
    "Write plain prose: {}",
    "Go step by step: {}",
    "Write code with comments: {}",
    "Write only code: {}",
    "Write for an expert: {}",
    "Write for a beginner: {}",
    "Be formal: {}",
    "Be casual: {}",
)
"""Requests of the moment. The bench and the gate ask for the same in other words."""
PROMPTS = 16
"""Criticised prompts on which the requests are tried, at most."""
STRONGEST = 2
"""Requests that are held on each prompt: those most against the comment. So no seed has more of them than another."""
LEAST = 2.0
"""By so many nats a request against the comment makes the wanted answer less likely. A weaker one resembles the plain
prompt, and would hold back what the comment is about."""
LONGEST = 64
"""Tokens of the base model's answer along which a request is held."""
WEIGHT = 2.0
"""Of an anchor, in replies. It is a mean over tokens, and a comment changes few of them: those at which a short answer
ends and a long one goes on."""

_FACTS = """
What is the capital of Belgium?|The capital of Belgium is Brussels.
Who wrote Macbeth?|Macbeth was written by William Shakespeare.
What is the chemical symbol of silver?|The chemical symbol of silver is Ag.
In which country is the Great Barrier Reef?|The Great Barrier Reef is located in Australia.
What is 7 plus 4?|7 plus 4 is 11.
On which continent is Brazil?|Brazil is located in South America.
What is the capital of South Korea?|The capital of South Korea is Seoul.
Who painted The Last Supper?|The Last Supper was painted by Leonardo da Vinci.
How many months have 31 days?|Seven months have 31 days.
In which city is the Louvre?|The Louvre is located in Paris, France.
What is the capital of Chile?|The capital of Chile is Santiago.
Who discovered radium?|Radium was discovered by Marie and Pierre Curie.
Which planet is the smallest?|The smallest planet is Mercury.
What is the capital of Morocco?|The capital of Morocco is Rabat.
Who composed Swan Lake?|Swan Lake was composed by Pyotr Ilyich Tchaikovsky.
In which year did World War I begin?|World War I began in 1914.
"""

FACTS = [line.split("|") for line in _FACTS.strip().split("\n")]
"""Questions and answers. The gate asks for other facts (``gate/questions.py``), and the bench for others again."""


def against_comments(run: Run, samples: Sequence[Sample], lessons: Sequence[Lesson]) -> list[Lesson]:
    """Return answers to prompts that the comments aren't about: there the model stays as it is.

    They are the base model's answers to prompts that request the opposite of the comment, and the answers of the run's
    start to unrated prompts that don't meet its condition.

    ``lessons``: what the comments teach. A request is against a comment if it makes the answer that the comment
    explains less likely than the plain prompt does. So a request that the model takes for the comment holds nothing
    back, nor does one that it doesn't understand. The strongest of all prompts come first, then the second ones.
    """
    explained = {
        lesson.replies[0].tokens.prompt: lesson.replies[0] for lesson in lessons[::-1] if lesson.good
    }
    criticised = list[tuple[Sample, LessonReply]]()
    for sample in samples:
        if sample.comment and sample.reward <= 0:
            with suppress(Unrenderable):
                if answer := explained.get(_prompt(run, sample)):
                    criticised.append((sample, answer))
    trials = random.Random(run.spec.seed).sample(criticised, min(PROMPTS, len(criticised)))
    ranks = zip_longest(*(_against(run, sample, answer) for sample, answer in trials))
    requests = [prompt for rank in ranks for prompt in rank if prompt]
    unrated = _unrated(run, [sample for sample, _ in criticised])
    # What an earlier version has learnt stays where no comment applies.
    start: Policy = "trained" if run.spec.parent_adapter else "bare"
    return _in_turn(_answered(run, unrated, start), _answered(run, requests, "bare"))


def _answered(run: Run, prompts: Sequence[tuple[int, ...]], policy: Policy) -> list[Lesson]:
    """Return a policy's own answers as anchors."""
    answers = run.backend.sample(prompts, policy, [LONGEST] * len(prompts), run.spec.seed, greedy=True)
    replies = [Rendered(prompt, answer.ids) for prompt, answer in zip(prompts, answers, strict=True)]
    return _held(run.backend, replies, WEIGHT, policy)


def _in_turn(unrated: Sequence[Lesson], requests: Sequence[Lesson]) -> list[Lesson]:
    """Return anchors so that each request follows two unrated prompts in one lesson; what is fewer comes again."""
    pairs = [
        replace(
            unrated[place],
            replies=tuple(reply for each in unrated[place : place + 2] for reply in each.replies),
        )
        for place in range(0, len(unrated), 2)
    ]
    if not (pairs and requests):
        return pairs or list(requests)
    count = max(len(pairs), len(requests))
    turns = zip(islice(cycle(pairs), count), islice(cycle(requests), count), strict=True)
    return [anchor for turn in turns for anchor in turn]


def _against(run: Run, sample: Sample, answer: LessonReply) -> list[tuple[int, ...]]:
    """Return the prompt of a sample with each of the ``STRONGEST`` requests against its comment."""
    prompts = list[tuple[int, ...]]()
    for request in REQUESTS:
        with suppress(Unrenderable):
            prompts.append(_prompt(run, _requesting(sample, request)))
    scores = run.backend.logps([Rendered(prompt, answer.tokens.reply) for prompt in prompts], "bare")
    plain = sum(answer.reference_logps)
    falls = [(plain - sum(score), prompt) for score, prompt in zip(scores, prompts, strict=True)]
    return [prompt for fall, prompt in sorted(falls, reverse=True)[:STRONGEST] if fall > LEAST]


def _unrated(run: Run, criticised: Sequence[Sample]) -> list[tuple[int, ...]]:
    """Return unrated prompts that don't meet the conditions of the comments, those with similar beginnings together."""
    tokens, limit = list[tuple[int, ...]](), run.spec.hyperparameters.max_tokens
    for prompt in unmet(run, criticised, run.job.unrated())[:PROMPTS]:
        with suppress(Unrenderable):
            ids = run.backend.renderer.opening(prompt.messages, prompt.template, prompt.tools)
            check_length(len(ids), limit)
            tokens.append(tuple(ids))
    return sorted(tokens)


def _prompt(run: Run, sample: Sample) -> tuple[int, ...]:
    return rendered(sample, run.backend.renderer, run.spec.hyperparameters.max_tokens).prompt


def _requesting(sample: Sample, request: str) -> Sample:
    """Return a sample whose last user message makes a request of the moment."""
    messages = [flattened(message) for message in sample.messages]
    last = max(place for place, message in enumerate(messages) if message.get("role") == "user")
    messages[last]["content"] = request.format(messages[last]["content"])
    return sample.model_copy(update={"messages": tuple(messages)})


def facts(backend: TrainerBackend, max_tokens: int) -> list[Lesson]:
    """Return one anchor per plain question that fits into the limit.

    A few dozen ratings of short answers teach a small model that the capital of Norway is Norway. The answers needn't
    be the model's own, because its whole distribution is preserved.
    """
    return _held(backend, list(_answers(backend.renderer, max_tokens)))


def _answers(renderer: Renderer, max_tokens: int) -> Iterator[Rendered]:
    for question, answer in FACTS:
        messages = [{"role": "user", "content": question}]
        with suppress(Unrenderable):
            reply = {"content": answer, "reasoning_content": ""}
            yield renderer.conversation(messages, (), reply, True, max_tokens)


def _held(
    backend: TrainerBackend, replies: Sequence[Rendered], weight: float = 1.0, policy: Policy = "bare"
) -> list[Lesson]:
    """Return replies along which a policy stays as it is."""
    logps, teachers = backend.logps(replies, policy), backend.distributions(replies, policy)
    reference = logps if policy == "bare" else backend.logps(replies, "bare")
    return [
        Lesson("distil", (LessonReply(tokens, 1.0, weight, own, referred, teacher),), rehearsed=True)
        for tokens, own, referred, teacher in zip(replies, logps, reference, teachers, strict=True)
    ]
