"""Reports in the house's tone: a team lead rewrites some notes, and later ones arrive in that tone.

Measured: the share of reports that begin with "Status:" and have no "I" and no "!".
"""

import re

from measured import SMALL, Answer, ask, items, measure, rate

SYSTEM = "Write one sentence for the weekly report."
TASKS = items("""
the login page, the search index, the mobile app, the invoice export, the backup server, the data import, the
test suite, the price list, the user survey, the payment service, the mail queue, the address book, the image
cache, the release plan, the map view, the print layout
""")
STATES = (
    "is finished and was tested on Monday",
    "is two days late",
    "works, but it is slow",
    "starts next week",
)


def in_house_tone(answer: Answer) -> float:
    return float(answer.text.startswith("Status:") and not re.search(r"\bI\b|!", answer.text))


def teach() -> list[Answer]:
    answers = []
    for place, task in enumerate(TASKS[: 8 if SMALL else 16]):
        state = STATES[place % len(STATES)]
        answer = ask(f"Report that {task} {state}.", system=SYSTEM, max_tokens=48)
        rate(answer, correction=f"Status: {task} {state}.")
        answers.append(answer)
    return answers


NEW = [
    f"Report that {task} {state}."
    for task in items("the chat window, the door sensor, the app store")
    for state in STATES
]
measure("in the house's tone", NEW[: 6 if SMALL else 12], in_house_tone, teach, system=SYSTEM, max_tokens=48)
