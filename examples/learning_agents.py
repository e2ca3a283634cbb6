"""Shared by the agents that learn: a burnish of their own, a warm start, and rounds of play and training.

Each prints what the base model gets, what the warm start brought, and what the rewards brought, apart from each other.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from typing import Any

from burnish.agents import GymAgent, Refused
from burnish.agents.demonstrations import Demonstration
from burnish.agents.playing import Environments
from burnish.parts.desktop.demo.running import burnish


@dataclass(frozen=True)
class Size:
    """How much is played."""

    demonstrations: int
    rounds: int
    seeds: int
    """Of a round."""
    attempts: int
    """At each seed."""
    fresh: int
    """Seeds that are only measured."""

    def of(self, episodes: int) -> Size:
        """Return a size with at least so many episodes to learn from, in whole groups of attempts; 0: as it is."""
        if not episodes:
            return self
        seeds = min(self.seeds, ceil(episodes / self.attempts))
        return replace(self, seeds=seeds, rounds=ceil(episodes / (seeds * self.attempts)))


@dataclass(frozen=True)
class Given:
    """The command line."""

    full: bool
    seed: int
    judge: bool
    model: str
    device: str
    episodes: int

    @property
    def fresh_from(self) -> int:
        """The first of the fresh seeds, which no training plays."""
        return 1_000_000 * (self.seed + 1)


def command_line(description: str | None) -> Given:
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--full", action="store_true", help="learn to play well, not only show how; half an hour or more"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--judge", action="store_true", help="have the gate judge the version in the end; minutes"
    )
    parser.add_argument("--model", default="", help="another one than the small model, as of `burnish up`")
    parser.add_argument("--device", default="auto", help="trains there: cpu, cuda, mps, as of `train.device`")
    parser.add_argument(
        "--episodes",
        type=_count,
        default=0,
        help="how many to play and learn from, instead of the size's own",
    )
    given = parser.parse_args()
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    # By default SIGTERM ends Python at once, and the burnish that it started would go on for ever.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    return Given(**vars(given))


def _count(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of episodes, expected 1 or more")
    return int(text)


@contextlib.contextmanager
def own_burnish(given: Given) -> Iterator[str]:
    """Start a burnish in a temporary folder; gives its address."""
    settings: dict[str, Any] = {"schedule": "manual", "rehearsed": 0, "kl_beta": 0, "seed": given.seed}
    # A few demonstrations in small batches still make steps enough.
    often = {"batch_size": 16, "epochs": 3} if given.full else {"batch_size": 2, "epochs": 1}
    settings |= {"learning_rate": 4e-4, "device": given.device} | often
    env = {f"BURNISH_TRAIN__{name.upper()}": str(value) for name, value in settings.items()}
    # The form of an action is far from how the model talks, so the distance from the base model ends nothing here.
    env["BURNISH_TRAIN__ADVANCED__KL_STOP"] = "10"
    if given.model:
        env["BURNISH_MODEL"] = given.model
    with tempfile.TemporaryDirectory(prefix="burnish-agent-") as folder, burnish(Path(folder), env) as url:
        yield url


class Clock:
    """Prints lines with the time since the start."""

    def __init__(self) -> None:
        self._started = time.monotonic()

    def say(self, line: str) -> None:
        passed = time.monotonic() - self._started
        print(f"{passed // 60:3.0f}:{passed % 60:02.0f}  {line}", flush=True)


def warm_start(agent: GymAgent, demonstrations: Sequence[Demonstration], clock: Clock) -> None:
    run = agent.warm_start(demonstrations)
    clock.say(f"warm start: version {run['version']} from {run['demonstrations']} demonstrations")


def learn(
    agent: GymAgent,
    env: Environments,
    seeds: Callable[[int], Sequence[int]],
    size: Size,
    clock: Clock,
    **wanted: Any,
) -> None:
    """Play and train in turn. ``seeds``: those of a round. ``wanted``: as of ``GymAgent.learn``."""
    for number in range(size.rounds):
        rollouts = agent.play(env, seeds(number), attempts=size.attempts)
        try:
            run = agent.learn(**wanted)
        except Refused as error:
            clock.say(f"round {number + 1}: {rollouts}; nothing was learnt: {error}")
            continue
        learnt = f"version {run['version']} from {run['samples']} steps of {len(rollouts.outcomes)} episodes"
        clock.say(f"round {number + 1}: {rollouts}; {learnt}")


def judge(agent: GymAgent, env: Environments, given: Given, size: Size, clock: Clock) -> None:
    if given.judge:
        verdict = agent.judge(env, range(given.fresh_from, given.fresh_from + size.fresh))
        clock.say(f"the gate: {verdict['status']}: {verdict['reason']}")
