"""The training bench, on a tiny model of random weights."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import training_gpu
from bench.training_batch import COUNT, answers, rated
from burnish.training.job import Hyperparameters

TINY = {
    "vocab_size": 2500,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 1024,
}
LINEAR = 2 * (2 * 32 * 32 + 2 * 32 * 16 + 3 * 32 * 64)
"""Weights of the tiny model's linear layers: q and o, k and v, gate, up and down."""
NORMS = 5 * 32


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    training_gpu.random_model(folder, TINY, "cpu", rated())
    return folder


def test_the_batch_has_short_and_long_answers_half_of_them_good() -> None:
    assert len(answers()) == COUNT
    lengths = [len(answer.reply.split()) for answer in answers()]
    assert min(lengths) < 20
    assert max(lengths) > 100
    assert sum(sample.reward > 0 for sample in rated()) == COUNT // 2


def test_the_way_of_the_gpu_runs_and_counts_what_the_mathematics_needs(tiny: Path) -> None:
    # Every rating counts: what random weights find alike is chance.
    config = Hyperparameters(epochs=2, label_noise=0.0)
    run = training_gpu.measure(tiny, rated(), config, "cpu")
    assert run.steps == 2 * COUNT // 8
    head = TINY["vocab_size"] * TINY["hidden_size"]
    forward = 2 * ((LINEAR + NORMS) * run.tokens + head * run.reply_tokens) / 2  # of one epoch
    assert run.flops == pytest.approx(forward + 2 * 2 * forward)
    assert "989" in training_gpu.report(run, "NVIDIA H200")
    assert "peak unknown" in training_gpu.report(run, "a card of tomorrow")


@pytest.mark.gpu
def test_an_8b_model_learns_32_ratings_within_the_limit() -> None:
    assert training_gpu.main() == 0
