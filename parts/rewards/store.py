"""The reward model in the data folder, whether it is on, and what the API tells of it."""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from burnish.adapters.errors import UnreadableRewardModel
from burnish.config.hyperparameters import FrozenRecord
from burnish.gate.rewards import MIN_RATED, Ensemble, RewardManifest, read_reward_model
from burnish.system import durable

STATE = "state.json"
PREFIX = "rm_"
TRAIN = "`burnish reward train`"
NO_MODEL = f"there is no reward model yet: rate {MIN_RATED} answers or more, good ones and bad ones, then run {TRAIN}"


class StoreState(FrozenRecord):
    """``state.json``: which model is the latest, and since when it is on."""

    model: str
    on_since: float | None
    """Seconds since the epoch, UTC; None: it is off."""


@dataclass(frozen=True, slots=True)
class StoredModel:
    id: str
    manifest: RewardManifest
    ensemble: Ensemble
    on_since: float | None

    @property
    def doubt(self) -> str:
        order = self.manifest.order
        return (
            f"it puts {order.share:.0%} of good and bad answers that it hadn't seen in the right order (chance is "
            f"50%), and by so few ratings that may be {order.lower:.0%}"
        )

    @property
    def why_off(self) -> str | None:
        """Why it is off, and what to do; None if it is on."""
        if self.on_since:
            return None
        if self.manifest.order.believed:
            return "it was turned off: `burnish reward on` turns it on"
        return f"{self.doubt}: rate more answers, then run {TRAIN}"

    def json(self) -> dict[str, Any]:
        """Return where it comes from, and how each form ordered unseen ratings."""
        manifest = self.manifest
        return {
            "form": manifest.chosen,
            "made_at": manifest.made_at,
            "objective": manifest.objective,
            "learnt_from": manifest.learnt_from.model_dump(),
            "forms": [
                {
                    "name": form.name,
                    "order": form.share,
                    "lower": form.order and max(0.0, form.order.lower),
                    "upper": form.order and form.order.upper,
                    "believed": bool(form.order and form.order.believed),
                    "chosen": form.name == manifest.chosen,
                    "reason": form.reason,
                }
                for form in manifest.tried
            ],
        }


class Store:
    """Each call reads or writes files."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def latest(self) -> StoredModel | None:
        """Return the latest model; None if there is none yet. Raises UnreadableRewardModel."""
        state = self._state()
        if state is None:
            return None
        manifest, ensemble = read_reward_model(self._folder / state.model)
        return StoredModel(state.model, manifest, ensemble, state.on_since)

    def install(self, source: Path, name: str) -> StoredModel:
        """Move a new model here in place of the one before; on if it is believed.

        Raises OSError, UnreadableRewardModel.
        """
        manifest, ensemble = read_reward_model(source)
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        source.rename(self._folder / name)
        durable.sync(self._folder)
        model = self.switch(StoredModel(name, manifest, ensemble, None), on=manifest.order.believed)
        for path in self._folder.glob(f"{PREFIX}*"):
            if path.name != name:
                shutil.rmtree(path, ignore_errors=True)
        return model

    def switch(self, model: StoredModel, *, on: bool) -> StoredModel:
        """Turn a model on or off. Raises OSError."""
        state = StoreState(model=model.id, on_since=time.time() if on else None)
        durable.replace(self._folder / STATE, state.model_dump_json())
        return replace(model, on_since=state.on_since)

    def _state(self) -> StoreState | None:
        path = self._folder / STATE
        try:
            state = StoreState.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValidationError) as error:
            raise UnreadableRewardModel(
                f"{path} can't be read ({error}). Run {TRAIN} to make another reward model"
            ) from error
        if not state.model.startswith(PREFIX) or "/" in state.model:
            raise UnreadableRewardModel(f"{path} names no reward model of burnish: run {TRAIN}")
        return state
