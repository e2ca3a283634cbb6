"""Replies of the small model to many questions, several to each: what the reward benches choose from.

``python -m bench.rewards.pool FILE [--questions N] [--each N]`` appends until FILE holds so many replies to every
question. It takes two seconds a reply on two idle cores, and goes on where it stopped.
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
from burnish.learner import sampling
from burnish.learner.sampling import GatePrompt, Sampler

QUESTIONS = 160
EACH = 8
AT_A_TIME = 32
"""Prompts between two writes."""
PARAMS = {"temperature": 0.8, "top_p": 0.95, "max_tokens": 72}
SEED = 0


@dataclass(frozen=True, slots=True)
class Reply:
    question: str
    text: str
    finished: bool


def read(path: Path) -> dict[str, list[Reply]]:
    """Return question → its replies."""
    found: dict[str, list[Reply]] = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        reply = Reply(**json.loads(line))
        found.setdefault(reply.question, []).append(reply)
    return found


async def fill(path: Path, count: int, each: int) -> None:
    """Ask what is missing. Raises EngineError."""
    with TemporaryDirectory() as folder:
        host = EmbeddedHost(ensure_small_model(), base_model="smollm2", state_dir=Path(folder), threads=1)
        try:
            endpoint = await host.load(None)
            for prompts in _missing(read(path), count, each):
                sampler = Sampler("incumbent", endpoint, prompts)
                await sampling.ask([sampler])
                with path.open("a") as file:
                    for prompt in prompts:
                        answer = sampler.replies[prompt.id]
                        question = str(prompt.messages[-1]["content"])
                        file.write(json.dumps(asdict(Reply(question, answer.reply, answer.finished))) + "\n")
                print(f"{sum(map(len, read(path).values()))} of {count * each} replies", flush=True)
        finally:
            await host.close()


def _missing(found: dict[str, list[Reply]], count: int, each: int) -> Iterator[list[GatePrompt]]:
    """Yield a few prompts at a time; half of the programs ask for one sentence."""
    questions = random.Random(SEED).sample(PROMPTS, count)
    wanted = [
        _prompt(question, number)
        for question in questions
        for number in range(len(found.get(question, ())), each)
    ]
    for first in range(0, len(wanted), AT_A_TIME):
        yield wanted[first : first + AT_A_TIME]


def _prompt(question: str, number: int) -> GatePrompt:
    system = [{"role": "system", "content": BRIEFLY}] if number % 2 else []
    name = f"{question} {number}"
    return GatePrompt(name, (*system, {"role": "user", "content": question}), PARAMS, name)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path)
    parser.add_argument("--questions", type=int, default=QUESTIONS)
    parser.add_argument("--each", type=int, default=EACH)
    given = parser.parse_args()
    asyncio.run(fill(given.file, given.questions, given.each))


if __name__ == "__main__":
    main()
