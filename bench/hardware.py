"""Which hardware trains which model, how long, and in how much memory: measured on two cores, else computed.

``python -m bench.hardware`` prints README's table. The measured rows are the demo's (docs/demo.json). The computed ones
follow from the sizes of the models; docs/measurements.md has the formula. Nothing is measured or downloaded here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from bench.training_batch import answers
from bench.training_gpu import peak_flops
from burnish.parts.desktop.demo.halves import HALVES
from burnish.parts.desktop.demo.user import MAX_TOKENS
from burnish.training.device import LONG_END, Sizes, estimated_bytes
from burnish.training.job import Hyperparameters, Quantize

DEMO = Path(__file__).parents[1] / "docs" / "demo.json"
GB = 1e9
CHARACTERS_A_TOKEN = 4
# Measured on one card: bench.training --gpu, 8B on an H200 (docs/measurements.md).
SHARE_OF_PEAK = 0.03
CUT = f"answers cut at {MAX_TOKENS} tokens"
# What PyTorch's process needs on a CPU beside the estimate: the small model's measured peak less its estimate.
PROCESS_BYTES = 1.0 * GB


@dataclass(frozen=True, slots=True)
class Model:
    """A model's sizes, as its config.json has them."""

    name: str
    layers: int
    hidden: int
    inner: int
    queries: int
    """Width of all query heads together."""
    keys: int
    """Width of all key heads together, and of all value heads."""
    vocabulary: int
    tied: bool = True

    @property
    def head(self) -> int:
        return self.vocabulary * self.hidden

    @property
    def body(self) -> int:
        """Parameters of all layers."""
        attention = 2 * self.hidden * (self.queries + self.keys)
        return self.layers * (attention + 3 * self.hidden * self.inner)

    def bytes(self, quantize: Quantize) -> int:
        """Return the memory for training on it, as the trainer estimates it before it loads anything."""
        count = self.body + self.head * (1 if self.tied else 2)
        sizes = Sizes(self.hidden, self.inner, self.layers, self.vocabulary, self.keys)
        return estimated_bytes(count, sizes, Hyperparameters(max_tokens=LONG_END), quantize)

    @property
    def operations(self) -> float:
        """Of a run on 32 ratings that makes all epochs: one scoring pass, then forward and backward each epoch."""
        reply = sum(len(each.reply) for each in answers()) / CHARACTERS_A_TOKEN
        prompt = sum(len(m["content"]) for each in answers() for m in each.messages) / CHARACTERS_A_TOKEN
        forward = 2 * (self.body * (prompt + reply) + self.head * reply)
        return forward * (1 + 2 * Hyperparameters().epochs)


SMALL = Model("SmolLM2 135M", 30, 576, 1536, 576, 192, 49_152)
QWEN_06B = Model("Qwen3 0.6B", 28, 1024, 3072, 2048, 1024, 151_936)
QWEN_17B = Model("Qwen3 1.7B", 28, 2048, 6144, 2048, 1024, 151_936)
QWEN_4B = Model("Qwen3 4B", 36, 2560, 9728, 4096, 1024, 151_936)
QWEN_8B = Model("Qwen3 8B", 36, 4096, 12_288, 4096, 1024, 151_936, tied=False)
CORES = "two CPU cores"
ON_CORES = (QWEN_06B, QWEN_17B)
ON_CARDS: tuple[tuple[str, Model, Quantize], ...] = (
    ("RTX 4090", QWEN_4B, "none"),
    ("RTX 4090", QWEN_8B, "4bit"),
    ("A100", QWEN_8B, "none"),
    ("H100", QWEN_8B, "none"),
)


def table() -> list[str]:
    """Return the lines of the table in README."""
    lines = ["| hardware | model | one run of the trainer | its memory | |", "|---|---|---:|---:|---|"]
    return [*lines, *(f"| {' | '.join(row)} |" for row in (*_measured(), *_on_cores(), *_on_cards()))]


def _measured() -> Iterator[tuple[str, ...]]:
    for half in HALVES.values():
        of = _records(half.name)
        if of:
            seconds, peak = (mean(each[name] for each in of) for name in ("train_seconds", "peak_rss_bytes"))
            yield (
                CORES,
                SMALL.name,
                _time(seconds),
                _memory(peak),
                f"measured: {half.count} {half.name}, {CUT}",
            )


def _on_cores() -> Iterator[tuple[str, ...]]:
    """Take the thumbs' time times the ratio of operations."""
    seconds = mean(each["train_seconds"] for each in _records("thumbs"))
    for model in ON_CORES:
        longer = seconds * model.operations / SMALL.operations
        yield CORES, model.name, _time(longer), _memory(model.bytes("none") + PROCESS_BYTES), "computed"


def _on_cards() -> Iterator[tuple[str, ...]]:
    for card, model, quantize in ON_CARDS:
        seconds = model.operations / (SHARE_OF_PEAK * (peak_flops(card) or 0))
        name = model.name if quantize == "none" else f"{model.name}, {quantize.replace('bit', ' bit')}"
        yield card, name, _time(seconds), _memory(model.bytes(quantize)), "computed, not run"


def _records(half: str) -> list[dict[str, Any]]:
    return [each for each in json.loads(DEMO.read_text(encoding="utf-8")) if each["half"] == half]


def _time(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 60 else "under a minute"


def _memory(count: float) -> str:
    return f"{count / GB:.1f} GB"


if __name__ == "__main__":
    print("\n".join(table()))
