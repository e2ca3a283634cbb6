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


class State(BaseModel):
    """``state.json``: which model is the latest, and since when it is on."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: str
    on_since: float | None
    """Seconds since the epoch, UTC; None: it is off."""


@dataclass(frozen=True, slots=True)
class Kept:
    """The latest reward model."""

    id: str
    manifest: RewardManifest
    model: Ensemble
    on_since: float | None


class Shelf:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def latest(self) -> Kept | None:
        """Return the latest model; None if there is none yet. Raises UnreadableRewardModel."""
        state = self._state()
        if state is None:
            return None
        manifest, model = read_reward_model(self._folder / state.model)
        return Kept(state.model, manifest, model, state.on_since)

    def install(self, made: Path, name: str, *, on: bool) -> Kept:
        """Move a new model here in place of the one before. Raises OSError, UnreadableRewardModel."""
        manifest, model = read_reward_model(made)
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        made.rename(self._folder / name)
        durable.sync(self._folder)
        kept = self.switch(Kept(name, manifest, model, None), on=on)
        for each in self._folder.glob(f"{PREFIX}*"):
            if each.name != name:
                shutil.rmtree(each, ignore_errors=True)
        return kept

    def switch(self, kept: Kept, *, on: bool) -> Kept:
        """Turn a model on or off. Raises OSError."""
        state = State(model=kept.id, on_since=time.time() if on else None)
        durable.replace(self._folder / STATE, state.model_dump_json())
        return Kept(kept.id, kept.manifest, kept.model, state.on_since)

    def _state(self) -> State | None:
        path = self._folder / STATE
        try:
            state = State.model_validate_json(path.read_bytes())
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
