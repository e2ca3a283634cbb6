"""A tutor that nobody rates: how long a pupil stays, and whether they ask on, is the feedback.

Here the pupil is simulated. They leave a long answer after five seconds; a short one they read, and ask a further
question. Measured: the share of new answers that this pupil stays for.
"""

from measured import SMALL, Answer, ask, items, measure, rate

SYSTEM = "You are a tutor. Answer in one short sentence."
SUBJECTS = items("""
a fraction, a verb, gravity, a volcano, a metaphor, an atom, a triangle, photosynthesis, a comet, a noun, an
echo, a magnet, a prime number, a glacier, a rhyme, a fossil, a shadow, an island, a decimal, a desert,
friction, a rainbow, a planet, an adjective, a circle, a cell, a tide, a poem, an angle, a muscle, a root, a
season
""")
NEW = items("""
a star, a river, a vowel, a square, a seed, a cloud, a tooth, a bridge, a storm, a bone, a fable, a leaf
""")
SHORT_WORDS = 20


def signals(answer: Answer) -> tuple[float, int]:
    """Return how many seconds the pupil stays, and how many further questions they ask."""
    words = len(answer.text.split())
    return (30.0, 1) if 2 < words <= SHORT_WORDS else (5.0, 0)


def engaged(answer: Answer) -> bool:
    seconds, further = signals(answer)
    return seconds > 10 and further > 0


def teach() -> list[Answer]:
    asked = SUBJECTS[: 12 if SMALL else 32]
    answers = [
        ask(f"What is {each}?", system=SYSTEM, max_tokens=48, seed=place) for place, each in enumerate(asked)
    ]
    for answer in answers:
        rate(answer, rating=1.0 if engaged(answer) else -1.0, source="implicit", tags=["time", "follow-up"])
    return answers


questions = [f"What is {each}?" for each in NEW[: 6 if SMALL else 12]]
measure("keeps the pupil", questions, engaged, teach, system=SYSTEM, max_tokens=48)
