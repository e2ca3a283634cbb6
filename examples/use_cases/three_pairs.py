"""The exercise of many an explanation of RLHF: three preferences become reward data, and the model follows them.

Someone finds three answers too long-winded, and writes simpler ones. Prints the three pairs as rows of a reward data
set (`burnish data export --as dpo` writes the same), then trains on them. Measured: how far new answers stay below 60
words, in [0, 1].
"""

import json

from measured import SMALL, Answer, ask, items, measure, rate

SIMPLE = {
    "Explain what a computer is.": "A computer is a machine that follows a list of steps, very fast.",
    "Explain what rain is.": "Rain is water that falls from clouds when their drops get too heavy.",
    "Explain what a bank does.": "A bank keeps your money safe and lends some of it to others.",
}
NEW = items("a school, snow, a train, a garden, wind, a shop, a song, a wheel")


def simple(answer: Answer) -> float:
    return max(0.0, 1 - len(answer.text.split()) / 60)


def teach() -> list[Answer]:
    answers = [ask(prompt, temperature=0) for prompt in SIMPLE]
    for answer in answers:
        chosen = SIMPLE[answer.question]
        rate(answer, correction=chosen)
        print(json.dumps({"prompt": answer.question, "chosen": chosen, "rejected": answer.text}))
    return answers


questions = [f"Explain what {each} is." for each in NEW[: 4 if SMALL else 8]]
measure("below 60 words", questions, simple, teach)
