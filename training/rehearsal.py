"""Plain questions that a run rehearses beside its ratings, to preserve what the base model knows.

A few dozen ratings of short answers teach a small model that the capital of Norway is Norway, and to be brief even if
detail is requested. So each step also learns the next-token probabilities of the base model along a few plain answers
to plain questions (``objectives.imitation.distil``). At the start of a run their gradient is zero; later it pulls back
to the base model on such questions only. The answers needn't be sampled from the model, because its whole distribution
is preserved.

Source: pseudo-rehearsal, Robins 1995 (doi:10.1080/09540099550039318); Learning without Forgetting, arXiv 1606.09282.
The gate asks for other facts (``adapters/facts.py``), and the bench for others again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from burnish.training.backends.base import Lesson, Reply, TrainerBackend
from burnish.training.rendering import Rendered, Renderer, Unrenderable

_ANSWERS = """
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

ANSWERS: tuple[tuple[str, str], ...] = tuple(
    (question, answer)
    for question, _, answer in (line.partition("|") for line in _ANSWERS.strip().split("\n"))
)
"""Questions and answers."""


def rehearsal(backend: TrainerBackend, max_tokens: int) -> list[Lesson]:
    """Return one lesson per question: the base model's next-token probabilities along the answer."""
    answers = list(_rendered(backend.renderer, max_tokens))
    logps, teachers = backend.logps(answers, "bare"), backend.distributions(answers, "bare")
    return [
        Lesson(
            "distil",
            (Reply(tokens, (1.0,) * len(tokens.reply), True, 1.0, own, own, teacher),),
            rehearsed=True,
        )
        for tokens, own, teacher in zip(answers, logps, teachers, strict=True)
    ]


def _rendered(renderer: Renderer, max_tokens: int) -> Iterator[Rendered]:
    """Yield the answers that fit into the limit."""
    for question, answer in ANSWERS:
        asked = [{"role": "user", "content": question}]
        with suppress(Unrenderable):
            yield renderer.conversation(asked, (), {"role": "assistant", "content": answer}, True, max_tokens)
