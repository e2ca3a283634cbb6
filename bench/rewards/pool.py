"""Replies of the small model to many questions, several to each: what the reward benches choose from.

``python -m bench.rewards.pool FILE [--questions N]`` appends until FILE holds ``EACH`` replies to every question. It
takes three seconds a reply on one core, and goes on where it stopped.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.learning.questions import BRIEFLY, PROMPTS
from burnish.adapters.hosts.embedded import EmbeddedHost
from burnish.adapters.hosts.fetch import ensure_small_model
from burnish.proxy.learner import sampling
from burnish.proxy.learner.sampling import Prompt, Side

QUESTIONS = 160
EACH = 4
AT_A_TIME = 8
"""Questions that are asked between two writes."""
PARAMS = {"temperature": 0.8, "top_p": 0.95, "max_tokens": 72}
SEED = 0


@dataclass(frozen=True, slots=True)
class Reply:
    question: str
    text: str
    finished: bool


def read(path: Path) -> dict[str, list[Reply]]:
    """Return question → its replies, those with ``EACH`` replies only."""
    found: dict[str, list[Reply]] = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        reply = Reply(**json.loads(line))
        found.setdefault(reply.question, []).append(reply)
    return {question: replies for question, replies in found.items() if len(replies) == EACH}


async def fill(path: Path, count: int) -> None:
    """Ask as many questions as are missing. Raises EngineError."""
    with TemporaryDirectory() as folder:
        host = EmbeddedHost(ensure_small_model(), base_model="smollm2", state_dir=Path(folder), threads=1)
        try:
            endpoint = await host.load(None)
            for prompts in _missing(read(path), count):
                side = Side("incumbent", endpoint, prompts)
                await sampling.ask([side])
                with path.open("a") as file:
                    for prompt in prompts:
                        answer = side.answered[prompt.id]
                        question = str(prompt.messages[-1]["content"])
                        file.write(json.dumps(asdict(Reply(question, answer.reply, answer.finished))) + "\n")
                print(f"{len(read(path))} of {count} questions", flush=True)
        finally:
            await host.close()


def _missing(found: dict[str, list[Reply]], count: int) -> Iterator[list[Prompt]]:
    """Yield prompts a few questions at a time; half of the programs ask for one sentence."""
    questions = random.Random(SEED).sample(PROMPTS, count)
    left = [question for question in questions if question not in found]
    for first in range(0, len(left), AT_A_TIME):
        yield [
            _prompt(question, number)
            for question in left[first : first + AT_A_TIME]
            for number in range(EACH)
        ]


def _prompt(question: str, number: int) -> Prompt:
    system = [{"role": "system", "content": BRIEFLY}] if number % 2 else []
    name = f"{question} {number}"
    return Prompt(name, (*system, {"role": "user", "content": question}), PARAMS, name)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path)
    parser.add_argument("--questions", type=int, default=QUESTIONS)
    given = parser.parse_args()
    asyncio.run(fill(given.file, given.questions))


if __name__ == "__main__":
    main()
