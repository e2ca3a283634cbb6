"""A person who likes some words, in front of a burnish: enough ratings for a reward model."""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path
from typing import Any

import httpx

from burnish.gate.rewards import Ensemble, RatedReply, fit_preference_model, ridges, write_reward_model
from burnish.gate.rewards.files import LearntFrom, Trial
from burnish.parts.rewards.store import Store
from burnish.proxy.ids import reward_model_id
from tests.support.upstream import Received, Script, by_request, completion, reply

WORDS = ("river", "stone", "light", "paper", "green", "window", "music", "garden", "winter", "bread")
LIKED, DISLIKED = "usually", "never"


def sentence(dice: random.Random, *, liked: bool) -> str:
    """A reply that the person likes, or doesn't, by one word somewhere in it."""
    words = [dice.choice(WORDS) for _ in range(dice.randint(6, 14))]
    words.insert(dice.randint(1, len(words)), LIKED if liked else DISLIKED)
    return f"{' '.join(words).capitalize()}."


def parrot(answers: dict[str, Script]) -> Script:
    """An upstream that says what the last message tells it to, unless there is a script for it."""

    def answer(request: Received) -> Script:
        said = request.json()["messages"][-1]["content"]
        return answers.get(said, reply(completion(said)))

    return by_request(answer)


async def ask(
    client: httpx.AsyncClient, text: str, *, headers: dict[str, str] | None = None, **body: Any
) -> httpx.Response:
    messages = [{"role": "user", "content": text}]
    return await client.post(
        "/v1/chat/completions", json={"model": "m", "messages": messages, **body}, headers=headers or {}
    )


async def rate(client: httpx.AsyncClient, answer: httpx.Response, rating: str) -> None:
    name = answer.headers["x-burnish-completion-id"]
    given = await client.post("/v1/feedback", json={"completion_id": name, "rating": rating})
    assert given.status_code == 201, given.text


async def rate_many(client: httpx.AsyncClient, count: int = 40, *, only: str | None = None) -> None:
    """Ask and rate by what the person likes; ``only``: rate all of them the same."""
    dice = random.Random(0)
    for number in range(count):
        liked = number % 2 == 0
        answer = await ask(client, sentence(dice, liked=liked))
        await rate(client, answer, only or ("good" if liked else "bad"))


async def learn(client: httpx.AsyncClient) -> dict[str, Any]:
    """Learn a reward model; return what is known of it then."""
    begun = await client.post("/burnish/reward/train", json={})
    assert begun.status_code == 202, begun.text
    shown = begun.json()
    while shown["learning"]:
        await asyncio.sleep(0.05)
        shown = (await client.get("/burnish/reward")).json()
    return dict(shown)


def learnt_ensemble(seed: int = 0) -> Ensemble:
    """What the person's ratings teach."""
    dice = random.Random(seed)
    rated = [
        RatedReply(
            f"c{n}", "", sentence(dice, liked=n % 2 == 0), finished=True, reward=1.0 - 2 * (n % 2), weight=1.0
        )
        for n in range(40)
    ]
    model = fit_preference_model(rated)
    assert model
    return ridges(model)


def keep_model(data_dir: Path, model: Ensemble | None = None, *, share: float = 0.95) -> str:
    """Put a reward model into a data folder, on if its order is believed; return its name."""
    learnt_from = LearntFrom(good=20, bad=20, graded=0, pairs=0, conversations=40)
    tried = (Trial(name="words or form", share=share, error=0.01),)
    data_dir.mkdir(parents=True, exist_ok=True)
    made = data_dir / "made"
    write_reward_model(
        made,
        model or learnt_ensemble(),
        chosen="words or form",
        made_at=time.time(),
        objective="ridge",
        learnt_from=learnt_from,
        tried=tried,
    )
    return Store(data_dir / "rewards").install(made, reward_model_id()).id


def saying(*answers: Script) -> Script:
    """An upstream that gives these answers one after the other."""
    left = list(answers)

    return by_request(lambda request: left.pop(0))
