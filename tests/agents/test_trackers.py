from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from burnish.agents import MissingPackage
from burnish.agents.trackers import TRACKERS, tracker_named
from tests.agents.conftest import Corridor, Wire

VALUES = {"reward": 0.5, "interval": math.inf}


class Kept:
    def __init__(self) -> None:
        self.logged: list[tuple[int, dict[str, float]]] = []
        self.closed = False

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self.logged.append((step, dict(values)))

    def close(self) -> None:
        self.closed = True


def test_a_tracker_of_your_own_gets_the_figures_of_each_play(wire: Wire) -> None:
    kept = Kept()
    agent = wire.agent(tracker=kept)
    agent.play(Corridor, [0, 1], attempts=2)
    agent.play(Corridor, [2], held_out=True)
    (first, training), (second, held_out) = kept.logged
    assert (first, second) == (0, 1)
    assert training["reward"] == held_out["held_out/reward"] == 1.0
    assert training["episodes"] == 4
    agent.close()
    assert kept.closed


def test_none_is_on_unless_it_is_asked_for_and_an_unknown_one_is_refused_in_words() -> None:
    assert tracker_named(None, "task") is None
    with pytest.raises(
        ValueError, match="tensorboard, wandb, trackio, or an object with log and close, not 'mlflow'"
    ):
        tracker_named("mlflow", "task")


@pytest.mark.parametrize("name", TRACKERS)
def test_a_missing_package_says_what_to_install(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        __import__("sys").modules, "tensorboard.summary" if name == "tensorboard" else name, None
    )
    with pytest.raises(MissingPackage, match=rf"needs the package {name}: pip install 'burnish\[{name}\]'"):
        tracker_named(name, "task")


def test_tensorboard_writes_event_files_that_it_reads_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    monkeypatch.chdir(tmp_path)
    tracker = tracker_named("tensorboard", "blackjack")
    assert tracker
    tracker.log(3, VALUES)
    tracker.close()
    found = accumulator.EventAccumulator("runs/blackjack").Reload()
    assert found.Tags()["tensors"] == ["reward"], "what can't be drawn is left out"
    (event,) = found.Tensors("reward")
    assert (event.step, event.tensor_proto.float_val[0]) == (3, 0.5)


@pytest.mark.parametrize("name", ["wandb", "trackio"])
def test_the_others_log_without_a_network(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    tracker = tracker_named(name, "blackjack")
    assert tracker
    tracker.log(3, VALUES)
    tracker.close()
    written = [each for folder, _, files in os.walk(tmp_path) for each in files]
    assert any(each.endswith((".wandb", ".db")) for each in written)
