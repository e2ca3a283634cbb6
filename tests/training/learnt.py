"""A job on the real small model: twelve ratings, and what is measured of the version that they made."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from burnish.training.job import Hyperparameters, JobDirectory, PolicyReply
from tests.support.jobs import LONG, SHORT, TOPICS, Base, sample, write_job

COMMAND = [sys.executable, "-m", "burnish.training"]
COMMENT = "too long, one short sentence please"
REPLIES = {
    "Where do penguins live?": (
        "They are found in Antarctica and on the islands around it.",
        "It is a kind of soup.",
    ),
    "What is two plus two?": ("The result is four.", "They are red and yellow, and grow on trees."),
    "Who was Mozart?": ("He composed operas and symphonies in Vienna.", "You should water it once a week."),
    "What do bees make?": ("Honey, and wax.", "The capital is Paris."),
}
"""An apt reply and one that belongs to no question, neither of them with a word of its question."""
TOOLS = ({"type": "function", "function": {"name": "weather"}},)


def learn(folder: Path, small: Base) -> None:
    """Train and evaluate, each in a process of its own, as burnish does."""
    samples = [sample(n % 16, good=n % 2 == 0, held_out=n >= 12) for n in range(16)]
    samples[1] = samples[1].model_copy(update={"comment": COMMENT})  # the objective learns from ratings alone
    job = write_job(folder, small, samples, hyperparameters=Hyperparameters())
    command("train", job)
    job.write_replies([*rollouts(), *calls()])
    command("evaluate", job)


def command(step: str, job: JobDirectory) -> None:
    subprocess.run([*COMMAND, step, str(job.path)], check=True, stdin=subprocess.DEVNULL)


def rollouts() -> list[PolicyReply]:
    """Replies of the candidate, which are apt and short, and of the incumbent."""
    return [
        PolicyReply(policy=policy, prompt_id=question, messages=({"role": "user", "content": question},),
                    reply=reply, finished=True)
        for question, replies in REPLIES.items()
        for policy, reply in zip(("candidate", "incumbent"), replies, strict=True)
    ] + [
        PolicyReply(policy=policy, prompt_id=topic, reply=form.format(topic), finished=True,
                    messages=({"role": "user", "content": f"What is {topic.lower()}?"},))
        for topic in TOPICS[8:14]
        for policy, form in (("candidate", SHORT), ("incumbent", LONG))
    ]  # fmt: skip


def calls() -> list[PolicyReply]:
    """Replies that call a tool, which the small model's chat template does not write."""
    call = {"id": "1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Paris"}'}}
    asked = {"prompt_id": "tool", "messages": ({"role": "user", "content": "Is it warm in Paris?"},)}
    made: dict[str, Any] = asked | {"tools": TOOLS, "reply": "", "tool_calls": (call,)}
    return [
        PolicyReply(policy="candidate", finished=False, **made),
        PolicyReply(policy="incumbent", finished=True, **made),
    ]
