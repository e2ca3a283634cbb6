"""A support desk's voice: a colleague grades answers from 1 to 5, and likes those that say sorry first.

Measured: the share of answers to new complaints that begin with "I'm sorry".
"""

from measured import SMALL, Answer, ask, items, measure, rate

SYSTEM = "You answer customers of a web shop in one sentence."
THINGS = items("""
parcel, lamp, chair, book, phone, jacket, kettle, clock, radio, table, bike, tent, mirror, knife, guitar,
carpet
""")
TROUBLES = ("My {} is broken.", "The {} hasn't arrived.")
NEW = items("cup, sofa, bag, pen, desk, coat, shoe, ring, bed, hat, cap, bowl")


def sorry(answer: Answer) -> bool:
    return answer.text.lower().lstrip('"').startswith(("i'm sorry", "i am sorry", "we're sorry", "sorry"))


def teach() -> list[Answer]:
    complaints = [trouble.format(thing) for thing in THINGS for trouble in TROUBLES][: 12 if SMALL else 32]
    answers = [
        ask(complaint, system=SYSTEM, max_tokens=32, seed=place) for place, complaint in enumerate(complaints)
    ]
    for answer in answers:
        rate(answer, rating=5 if sorry(answer) else 2, scale="likert", rater="colleague")
    return answers


questions = [f"The {thing} has the wrong colour." for thing in NEW[: 6 if SMALL else 12]]
measure("says sorry first", questions, sorry, teach, system=SYSTEM, max_tokens=32)
