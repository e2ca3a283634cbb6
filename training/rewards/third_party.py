"""``python -m burnish.training.rewards.third_party MODEL``: scores replies by a sequence classifier of transformers.

MODEL is a directory, or the name of a model in the hub's cache on this machine; nothing is downloaded, and code that
comes with a model never runs. The program reads a request from each line of stdin,
``{"messages": […], "replies": ["…"]}``, and answers with a line ``{"rewards": […]}``. Its first line is
``{"ready": true}`` or ``{"error": "…"}``. It ends with its stdin.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any, TextIO

from burnish.training.errors import JobError, MissingDependency, TrainingError

MOST_TOKENS = 2048
"""Of a conversation with the reply; the beginning of a longer one is left out."""
NICENESS = 5


class Classifier:
    """A sequence classifier with one label: its logit is the score. Raises JobError, MissingDependency."""

    def __init__(self, name: str) -> None:
        try:
            import torch
            from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer
        except ImportError as error:
            raise MissingDependency.because(error) from error
        options: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
        try:
            config = AutoConfig.from_pretrained(name, **options)
            _check(name, config)
            self._tokenizer = AutoTokenizer.from_pretrained(name, truncation_side="left", **options)
            self._model, report = AutoModelForSequenceClassification.from_pretrained(
                name, use_safetensors=True, dtype=torch.float32, output_loading_info=True, **options
            )
        except JobError:
            raise
        except (OSError, ValueError, RuntimeError, KeyError) as error:
            raise JobError(
                f"the reward model {name} can't be loaded: {error}. It must be a directory with config.json, a "
                "tokenizer and *.safetensors, or a model that was downloaded before"
            ) from error
        if lacking := sorted(report["missing_keys"]):
            raise JobError(
                f"the reward model {name} lacks weights ({', '.join(lacking[:3])}): it was not trained as a reward "
                "model, or files are missing"
            )
        self._model.eval()
        self._torch = torch

    def score(self, messages: list[dict[str, Any]], replies: list[str]) -> list[float]:
        """Return a number in [0, 1] for each reply, σ of the logit."""
        scores = []
        for reply in replies:
            text = self._text([*messages, {"role": "assistant", "content": reply}])
            ids = self._tokenizer(text, return_tensors="pt", truncation=True, max_length=MOST_TOKENS)
            with self._torch.inference_mode():
                scores.append(float(self._model(**ids).logits[0, 0].sigmoid()))
        return scores

    def _text(self, messages: list[dict[str, Any]]) -> str:
        if self._tokenizer.chat_template:
            return str(self._tokenizer.apply_chat_template(messages, tokenize=False))
        return "\n\n".join(f"{message['role']}: {message['content']}" for message in messages)


def _check(name: str, config: Any) -> None:
    """Raises JobError if a model can't be a reward model."""
    if getattr(config, "auto_map", None):
        raise JobError(
            f"the reward model {name} needs code of its own, which burnish never runs: use another one"
        )
    kinds = config.architectures or []
    if not any(kind.endswith("ForSequenceClassification") for kind in kinds):
        kind = ", ".join(kinds) or "of no known kind"
        raise JobError(
            f"the reward model {name} is {kind}; expected a sequence classifier (…ForSequenceClassification)"
        )
    if config.num_labels != 1:
        raise JobError(
            f"the reward model {name} has {config.num_labels} labels; expected one, whose logit is the score"
        )


def main() -> int:
    os.nice(NICENESS)
    os.environ |= {
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    }
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # whatever a library prints is no answer
    try:
        classifier = Classifier(sys.argv[1])
    except TrainingError as error:
        _say(answers, error=str(error))
        return 2
    _say(answers, ready=True)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            _say(answers, rewards=classifier.score(request["messages"], request["replies"]))
        except Exception as error:  # noqa: BLE001 - one conversation that a template refuses must not end the others
            _say(answers, error=f"{type(error).__name__}: {error}")
    return 0


def _say(answers: TextIO, **content: Any) -> None:
    answers.write(json.dumps(content) + "\n")
    answers.flush()


if __name__ == "__main__":
    sys.exit(main())
