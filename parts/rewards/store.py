"""The reward model in the data folder, and whether it is on. Each call reads or writes files."""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from burnish.adapters.errors import UnreadableRewardModel
from burnish.gate.preference import Ensemble, RewardManifest, read_reward_model
from burnish.system import durable

STATE = "state.json"
PREFIX = "rm_"


class StoreState(BaseModel):
    """``state.json``: which model is the latest, and since when it is on."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: str
    on_since: float | None
    """Seconds since the epoch, UTC; None: it is off."""


@dataclass(frozen=True, slots=True)
class StoredModel:
    """The latest reward model."""

    id: str
    manifest: RewardManifest
    ensemble: Ensemble
    on_since: float | None


class Store:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def latest(self) -> StoredModel | None:
        """Return the latest model; None if there is none yet. Raises UnreadableRewardModel."""
        state = self._state()
        if state is None:
            return None
        manifest, ensemble = read_reward_model(self._folder / state.model)
        return StoredModel(state.model, manifest, ensemble, state.on_since)

    def install(self, source: Path, name: str, *, on: bool) -> StoredModel:
        """Move a new model here in place of the one before. Raises OSError, UnreadableRewardModel."""
        manifest, ensemble = read_reward_model(source)
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        source.rename(self._folder / name)
        durable.sync(self._folder)
        model = self.switch(StoredModel(name, manifest, ensemble, None), on=on)
        for path in self._folder.glob(f"{PREFIX}*"):
            if path.name != name:
                shutil.rmtree(path, ignore_errors=True)
        return model

    def switch(self, model: StoredModel, *, on: bool) -> StoredModel:
        """Turn a model on or off. Raises OSError."""
        state = StoreState(model=model.id, on_since=time.time() if on else None)
        durable.replace(self._folder / STATE, state.model_dump_json())
        return StoredModel(model.id, model.manifest, model.ensemble, state.on_since)

    def _state(self) -> StoreState | None:
        path = self._folder / STATE
        try:
            state = StoreState.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValidationError) as error:
            raise UnreadableRewardModel(
                f"{path} can't be read ({error}). Run `burnish reward train` to make another reward model"
            ) from error
        if not state.model.startswith(PREFIX) or "/" in state.model:
            raise UnreadableRewardModel(
                f"{path} names no reward model of burnish: run `burnish reward train`"
            )
        return state
