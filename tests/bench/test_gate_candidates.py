"""What the bench of the gate makes: as many damaged candidates as healthy ones, and damage that is some."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bench.gate_candidates import Candidate, candidates
from burnish.adapters.errors import CorruptAdapter
from burnish.adapters.registry import Registry
from burnish.training.lessons import check_teachable
from burnish.training.presets import hyperparameters
from tests.support.jobs import brief_samples
from tests.support.lora import random_lora, register, write_peft

DAMAGED = [each for each in candidates(6) if not each.healthy]
SPOILT = [each for each in DAMAGED if each.spoil]


def test_half_of_them_are_damaged_and_each_has_a_name_of_its_own() -> None:
    made = candidates(6)
    assert len({each.name for each in made}) == len(made) >= 20
    assert len(DAMAGED) * 2 == len(made)


@pytest.mark.parametrize("candidate", SPOILT, ids=lambda each: each.name)
def test_spoilt_weights_are_others_and_only_numbers_are_registered(
    candidate: Candidate, tmp_path: Path
) -> None:
    sound = random_lora(0, rank=1)
    assert candidate.spoil
    spoilt = candidate.spoil(sound)
    assert spoilt.keys() == sound.keys()
    assert any(not np.array_equal(spoilt[name], sound[name]) for name in sound)
    assert all(spoilt[name].dtype == np.float32 and spoilt[name].shape == sound[name].shape for name in sound)
    directory, registry = write_peft(tmp_path / "spoilt", spoilt, rank=1), Registry(tmp_path / "adapters")

    if "NaN" in candidate.name:
        with pytest.raises(CorruptAdapter, match="NaN"):
            register(registry, directory)
        assert registry.versions() == []
    else:
        register(registry, directory)


@pytest.mark.parametrize(
    "candidate", [each for each in DAMAGED if not each.spoil], ids=lambda each: each.name
)
def test_what_is_taught_wrongly_can_be_taught(candidate: Candidate) -> None:
    taught = candidate.taught(brief_samples(12, 0))
    assert taught
    assert not any(sample.held_out for sample in taught)
    settings = hyperparameters("balanced", candidate.objective, **candidate.settings)
    check_teachable(candidate.objective, taught, settings)
