"""Settings are the hyper-parameters themselves: those that a user sets win over what a run would take."""

from __future__ import annotations

from burnish.config.hyperparameters import AdvancedHyperparameters
from burnish.config.tables import TrainConfig
from burnish.training.presets import hyperparameters


def test_what_the_user_set_wins_over_preset_objective_and_size() -> None:
    own = {"learning_rate": 1e-5, "rank": 3, "kl_stop": 0.5, "token_band": (0.9, 1.1)}
    advanced = AdvancedHyperparameters(kl_stop=0.5, token_band=(0.9, 1.1))
    train = TrainConfig(learning_rate=1e-5, rank=3, advanced=advanced)
    assert train.overrides() == own
    found = hyperparameters("aggressive", "critique", **train.overrides())
    assert found.model_dump() | own == found.model_dump()


def test_a_default_that_the_user_set_wins_as_well() -> None:
    assert hyperparameters("careful").epochs != TrainConfig().epochs
    assert hyperparameters("careful", **TrainConfig(epochs=TrainConfig().epochs).overrides()).epochs == 8
