from __future__ import annotations

import pytest

from burnish.training.job import Objective, Sample
from burnish.training.presets import MIN_COMMENTS, choose, instructed, one_sided
from tests.support.jobs import sample


def rated(good: int, bad: int, comments: int = 0, **more: object) -> list[Sample]:
    samples = [sample(n, good=n < good) for n in range(good + bad)]
    return [
        each.model_copy(update={"comment": "too long" if good <= n < good + comments else None} | more)
        for n, each in enumerate(samples)
    ]


@pytest.mark.parametrize(
    ("samples", "objective"),
    [
        (rated(16, 16), "mis_po"),
        (rated(16, 16, comments=16), "mis_po"),
        (rated(1, 31), "mis_po"),
        (rated(1, 15, comments=15), "critique"),
        (rated(0, MIN_COMMENTS, comments=MIN_COMMENTS), "critique"),
        (rated(0, MIN_COMMENTS, comments=MIN_COMMENTS - 1), "mis_po"),
        (rated(0, 16, comments=16, reward=0.0), "critique"),
        (rated(0, 16, comments=16, held_out=True), "mis_po"),
        (rated(0, 8, reward=0.0, correction="shorter"), "dpo"),
        (rated(8, 8, correction="shorter"), "mis_po"),
        ([], "mis_po"),
    ],
)
def test_the_objective_follows_from_what_the_data_holds(samples: list[Sample], objective: Objective) -> None:
    assert choose(samples) == objective


@pytest.mark.parametrize(
    ("samples", "objective", "so"),
    [
        (rated(0, 8), "mis_po", True),
        (rated(8, 0), "hybrid", True),
        (rated(1, 8), "mis_po", False),
        (rated(0, 8, comments=8), "critique", False),
        (rated(0, 8, correction="shorter"), "dpo", False),
        ([*rated(0, 8), *rated(3, 0, held_out=True)], "mis_po", True),
        ([], "mis_po", False),
    ],
)
def test_only_ratings_of_one_kind_are_one_sided(
    samples: list[Sample], objective: Objective, so: bool
) -> None:
    assert one_sided(samples, objective) is so


def test_prompts_are_instructed_when_each_begins_with_a_system_message() -> None:
    one = sample(0, good=True)
    developer = one.model_copy(
        update={"messages": ({"role": "developer", "content": "Be kind"}, one.messages[1])}
    )
    plain = one.model_copy(update={"messages": one.messages[1:]})
    assert instructed([one, developer])
    assert not instructed([one, plain])
