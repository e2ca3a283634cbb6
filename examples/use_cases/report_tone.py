"""Reports in the house's tone: a team lead rewrites some notes soberly, and later ones arrive in that tone.

Measured: the share of reports that say the fact in 14 words at most, without "I", "we", "report" or "!".
"""

import re

from measured import SMALL, Answer, ask, items, measure, rate

SYSTEM = "Write one sentence for the weekly report."
TASKS = items("""
the login page, the search index, the mobile app, the invoice export, the backup server, the data import, the
test suite, the price list, the user survey, the payment service, the mail queue, the address book, the image
cache, the release plan, the map view, the print layout
""")
STATES = {
    "is finished and was tested on Monday": "tested on Monday",
    "is two days late": "two days late",
    "works, but it is slow": "slow",
    "starts next week": "next week",
}
"""What is to be reported, and the fact in it."""


def sober(answer: Answer) -> bool:
    fact = next(fact for state, fact in STATES.items() if state in answer.question)
    chatty = re.search(r"\b(I|I'm|we|we're|report|excited)\b|!", answer.text, re.IGNORECASE)
    return fact in answer.text and not chatty and len(answer.text.split()) <= 14


def teach() -> list[Answer]:
    answers = []
    for place, task in enumerate(TASKS[: 8 if SMALL else 16]):
        state = list(STATES)[place % len(STATES)]
        answer = ask(f"Report that {task} {state}.", system=SYSTEM, max_tokens=48)
        rate(answer, correction=f"{task.capitalize()} {state}.")
        answers.append(answer)
    return answers


new = [
    f"Report that {task} {state}." for task in items("the chat window, the door sensor") for state in STATES
]
measure("in the house's tone", new[: 4 if SMALL else 8], sober, teach, system=SYSTEM, max_tokens=48)
