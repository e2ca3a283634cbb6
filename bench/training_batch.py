"""The batch that the training bench trains on: 32 answers of the small model, kept in ``training_replies.jsonl``.

Everyday questions (``bench/learning/questions.py``), asked with the system prompt ``BRIEFLY`` and without it in turn,
so that the answers' lengths are mixed. ``python -m bench.training_batch`` samples them again.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from bench.learning.questions import BRIEFLY, PROMPTS
from burnish.training.job import Hyperparameters, Sample

COUNT = 32
FILE = Path(__file__).with_name("training_replies.jsonl")
MAX_TOKENS, SEED = 200, 0


@dataclass(frozen=True, slots=True)
class Answer:
    """A question and what the bare small model said to it."""

    question: str
    brief: bool
    """The system prompt asked for one short sentence."""
    reply: str

    @property
    def messages(self) -> tuple[dict[str, Any], ...]:
        """The prompt, in OpenAI chat form."""
        asked = {"role": "user", "content": self.question}
        return ({"role": "system", "content": BRIEFLY}, asked) if self.brief else (asked,)


def answers() -> list[Answer]:
    return [Answer(**json.loads(line)) for line in FILE.read_text(encoding="utf-8").splitlines()]


def rated() -> list[Sample]:
    """Return them as a user who likes short answers rates them: the shorter half is good."""
    kept = answers()
    middle = median(len(answer.reply) for answer in kept)
    return [_sample(place, answer, good=len(answer.reply) < middle) for place, answer in enumerate(kept)]


def _sample(place: int, answer: Answer, *, good: bool) -> Sample:
    return Sample(
        completion_id=f"cmpl_{place:02}",
        conversation_id=f"conv_{place:02}",
        feedback_ids=(f"fb_{place:02}",),
        messages=answer.messages,
        reply={"role": "assistant", "content": answer.reply},
        finished=True,
        reward=1.0 if good else -1.0,
        behaviour_version=0,
        held_out=False,
    )


def main() -> None:
    """Sample the answers again, from the small base model."""
    from burnish.adapters.hosts.fetch import SMALL_MODEL_DIGEST, cache_dir, ensure_small_model
    from burnish.training.backends.torch_peft import TorchPeftBackend
    from burnish.training.weights import prepared_weights

    weights = prepared_weights(ensure_small_model(), SMALL_MODEL_DIGEST, cache_dir() / "weights")
    backend = TorchPeftBackend(weights, None, Hyperparameters(), SEED, device="cpu")
    asked = [Answer(question, bool(n % 2), "") for n, question in enumerate(PROMPTS[:COUNT])]
    prompts = [tuple(backend.renderer.prompt(answer.messages)) for answer in asked]
    drawn = backend.sample(prompts, "bare", [MAX_TOKENS] * COUNT, SEED)
    said = [backend.renderer.text(each.ids).strip() for each in drawn]
    lines = [
        json.dumps(asdict(Answer(answer.question, answer.brief, text)), ensure_ascii=False)
        for answer, text in zip(asked, said, strict=True)
    ]
    FILE.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
