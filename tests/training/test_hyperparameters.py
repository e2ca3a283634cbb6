"""The limits of hyper-parameters, which the settings of the same names share."""

from __future__ import annotations

import math
from typing import Any

import pytest
from pydantic import ValidationError

from burnish.proxy.advanced import AdvancedConfig
from burnish.proxy.tables import TrainConfig
from burnish.training.hyperparameters import Hyperparameters
from burnish.training.presets import hyperparameters

WRONG: tuple[Any, ...] = (
    -1,
    math.nan,
    math.inf,
    -math.inf,
    10**9,
    "many",
    [2.0, 0.5],
    [0.0, 2.0],
    [0.5, math.inf],
)
SETTABLE = (
    Hyperparameters.model_fields.keys() & TrainConfig.model_fields.keys()
) | AdvancedConfig.model_fields.keys()


def test_every_hyperparameter_can_be_set_and_nothing_else_is_called_advanced() -> None:
    assert Hyperparameters.model_fields.keys() == SETTABLE


@pytest.mark.parametrize("name", sorted(SETTABLE))
@pytest.mark.parametrize("value", WRONG, ids=str)
def test_job_and_settings_refuse_the_same_values(name: str, value: object) -> None:
    table = AdvancedConfig if name in AdvancedConfig.model_fields else TrainConfig
    refused = []
    for schema in (Hyperparameters, table):
        try:
            schema.model_validate({name: value})
        except ValidationError:
            refused.append(schema)
    assert refused == [Hyperparameters, table]


def test_what_the_user_set_wins_over_preset_objective_and_size() -> None:
    own = {"learning_rate": 1e-5, "rank": 3, "kl_stop": 0.5, "token_band": (0.9, 1.1)}
    advanced = AdvancedConfig(kl_stop=0.5, token_band=(0.9, 1.1))
    train = TrainConfig(learning_rate=1e-5, rank=3, advanced=advanced)
    found = hyperparameters("aggressive", "critique", **train.overrides())
    assert found.model_dump() | own == found.model_dump()
