"""The exercise of many an explanation of RLHF: three preferences become reward data, and the model follows them.

Each prompt is answered twice, and someone prefers the simpler answer. Prints the three pairs as rows of a reward data
set, then trains on them. Measured: how far new answers stay below 60 words, in [0, 1].
"""

import json

from measured import SMALL, Answer, ask, measure, rate

PROMPTS = ("Explain what a computer is.", "Explain what rain is.", "Explain what a bank does.")
NEW = """Explain what a school is.|Explain what snow is.|Explain what a doctor does.|Explain what a train is.
Explain what a garden is.|Explain what wind is.|Explain what a shop is.|Explain what a song is.""".replace("\n", "|").split("|")


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


measure("below 60 words", NEW[: 4 if SMALL else 8], simple, teach)
