"""Shared by the use cases: ask, rate, let burnish learn, and ask other questions before and after.

Each case takes ``--small``, which is quick enough for a test. It exits 1 unless the answers to new questions are better
afterwards; so it fails against ``burnish up --no-train``, where nothing is learnt.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import httpx

URL = os.environ.get("BURNISH_URL", "http://127.0.0.1:8787/v1").removesuffix("/v1")
SMALL = "--small" in sys.argv
burnish = httpx.Client(base_url=URL, timeout=600, trust_env=False)


@dataclass(frozen=True)
class Answer:
    id: str
    question: str
    text: str


def ask(question: str, *, system: str | None = None, max_tokens: int = 96, **more: Any) -> Answer:
    messages = [{"role": "system", "content": system}] * bool(system) + [
        {"role": "user", "content": question}
    ]
    body = {"model": "default", "messages": messages, "max_tokens": max_tokens, **more}
    answered = burnish.post("/v1/chat/completions", json=body).raise_for_status()
    text = answered.json()["choices"][0]["message"]["content"] or ""
    return Answer(answered.headers["x-burnish-completion-id"], question, text.strip())


def rate(answer: Answer, **feedback: Any) -> None:
    """Send a rating, a comment, a correction or a preference."""
    stored = (
        burnish.post("/v1/feedback", json={"completion_id": answer.id, **feedback}).raise_for_status().json()
    )
    if not stored["usable"]:
        print(f"not usable: {stored['reason']}")


def learn() -> None:
    """Train on what was said, and put the version live. Says so if burnish refuses."""
    started = burnish.post("/burnish/train", json={"force": True})
    if started.is_error:
        print(f"nothing is learnt: {started.json()['error']['message']}")
        return
    path = f"/burnish/runs/{started.json()['run_id']}"
    while not (run := burnish.get(path).json())["ended_at"]:
        time.sleep(0.5)
    print(f"version {run['version']}, {run['status']}: {run['reason']}")
    if run["version"] and run["status"] != "live":
        # An example shows what was learnt; in daily use the gate decides.
        burnish.post(f"/burnish/adapters/{run['version']}/promote", json={"force": True}).raise_for_status()


def measure(
    what: str,
    questions: Sequence[str],
    score: Callable[[Answer], float],
    teach: Callable[[], Iterable[object]],
    less_wrong: float = 0.3,
    **asked: Any,
) -> None:
    """Ask, teach, learn and ask again, without sampling.

    Exits 1 unless the scores, in [0, 1], now miss 1 by so much less, as a share of what they missed before.
    """

    def scores() -> list[float]:
        return [score(ask(question, temperature=0, **asked)) for question in questions]

    before = scores()
    print(f"before: {what}: {fmean(before):.2f}", flush=True)
    print(f"{sum(1 for _ in teach())} answers rated", flush=True)
    learn()
    after = scores()
    better, worse = (sum(sign * (b - a) > 0 for a, b in zip(before, after, strict=True)) for sign in (1, -1))
    print(f"after: {what}: {fmean(after):.2f}; {better} of {len(questions)} questions better, {worse} worse")
    missed, misses = 1 - fmean(before), 1 - fmean(after)
    if not missed:
        sys.exit("Nothing could be learnt: all answers were right before.")
    if misses > (1 - less_wrong) * missed:
        sys.exit(
            f"It hasn't learnt: {less_wrong:.0%} fewer misses were expected, not {1 - misses / missed:.0%}."
        )
    print(f"{1 - misses / missed:.0%} fewer misses")


def items(text: str) -> list[str]:
    """Return what stands between commas."""
    return [" ".join(each.split()) for each in text.split(",")]
