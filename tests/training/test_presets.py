from __future__ import annotations

import pytest
from pydantic import ValidationError

from burnish.training.job import Hyperparameters
from burnish.training.presets import OVERRIDES, hyperparameters


def test_balanced_is_the_default():
    assert hyperparameters() == Hyperparameters()


def test_the_users_own_value_wins_and_the_rest_is_the_presets():
    found = hyperparameters("careful", learning_rate=1e-5)
    assert found.learning_rate == 1e-5
    assert found.epochs == OVERRIDES["careful"]["epochs"]


def test_presets_go_from_careful_to_aggressive():
    careful, balanced, aggressive = (hyperparameters(name) for name in ("careful", "balanced", "aggressive"))
    drift = [preset.learning_rate * preset.epochs for preset in (careful, balanced, aggressive)]
    assert drift == sorted(set(drift))
    assert careful.kl_stop < balanced.kl_stop < aggressive.kl_stop


def test_an_unknown_preset_names_the_known_ones():
    with pytest.raises(ValueError, match="'wild', expected one of careful, balanced, aggressive"):
        hyperparameters("wild")  # type: ignore[arg-type]


def test_an_unknown_value_is_named():
    with pytest.raises(ValidationError, match="learning_rat"):
        hyperparameters("careful", learning_rat=1)
