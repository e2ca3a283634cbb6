"""The exercise of many an explanation of RLHF: three preferences become reward data, and the model follows them.

Each prompt is answered twice, and someone prefers the simpler answer. Prints the three pairs as rows of a reward data
set, then trains on them. Measured: how far new answers stay below 60 words, in [0, 1].
"""

import json

from measured import SMALL, Answer, ask, items, measure, rate

PROMPTS = ("Explain what a computer is.", "Explain what rain is.", "Explain what a bank does.")
NEW = items("a school, snow, a train, a garden, wind, a shop, a song, a wheel")


def simple(answer: Answer) -> float:
    return max(0.0, 1 - len(answer.text.split()) / 60)


def teach() -> list[Answer]:
    taught = []
    for prompt in PROMPTS:
        pair = [ask(prompt, seed=seed) for seed in range(2)]
        chosen, rejected = sorted(pair, key=simple, reverse=True)
        rate(chosen, preferred_over=rejected.id)
        print(json.dumps({"prompt": prompt, "chosen": chosen.text, "rejected": rejected.text}))
        taught.append(chosen)
    return taught


questions = [f"Explain what {each} is." for each in NEW[: 4 if SMALL else 8]]
measure("below 60 words", questions, simple, teach)
