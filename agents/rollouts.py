"""Figures of episodes. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from burnish.agents.episode import Outcome

Z95 = 1.96
"""Half-widths of an interval in standard errors: 95 % of a normal distribution."""
MOSTLY = 0.5


@dataclass(frozen=True, slots=True)
class Rollouts:
    outcomes: tuple[Outcome, ...]
    notes: tuple[str, ...] = ()
    """What the user should know, in words."""

    @property
    def sound(self) -> list[Outcome]:
        """Episodes that didn't break off: only their rewards count."""
        return [outcome for outcome in self.outcomes if outcome.fault is None]

    @property
    def faults(self) -> int:
        return len(self.outcomes) - len(self.sound)

    @property
    def versions(self) -> list[int]:
        return sorted({outcome.version for outcome in self.outcomes if outcome.version is not None})

    @property
    def reward(self) -> float:
        """Mean of the episodes; NaN if there is none."""
        return mean([outcome.reward for outcome in self.sound])

    @property
    def interval(self) -> float:
        """Half-width of the 95 % interval of ``reward``."""
        return interval([outcome.reward for outcome in self.sound])

    @property
    def invalid_share(self) -> float:
        """Share of replies without a valid action."""
        replies = sum(outcome.steps for outcome in self.sound)
        return sum(outcome.invalid for outcome in self.sound) / replies if replies else 0.0

    def statistics(self) -> dict[str, float]:
        """Return the figures for a tracker."""
        sound = self.sound
        return {
            "episodes": len(self.outcomes),
            "reward": self.reward,
            "reward_interval": self.interval,
            "episode_length": mean([outcome.steps for outcome in sound]),
            "invalid_share": self.invalid_share,
            "cut": sum(outcome.cut for outcome in sound),
            "faults": self.faults,
        }

    def __str__(self) -> str:
        text = f"{len(self.outcomes)} episodes, reward {self.reward:.3f} ± {self.interval:.3f}"
        text += f", {self.invalid_share:.1%} of replies invalid"
        cut = sum(outcome.cut for outcome in self.sound)
        text += f", {cut} cut at the step limit" if cut else ""
        return text + (f", {self.faults} broke off" if self.faults else "")


def mean(values: Sequence[float]) -> float:
    return fmean(values) if values else math.nan


def interval(values: Sequence[float]) -> float:
    """Return the half-width of the 95 % interval of the mean; infinite for fewer than two values."""
    return Z95 * stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.inf


def notes_on(
    outcomes: Sequence[Outcome], attempts: int, held_out: bool, *, choices: str | None, missing: str | None
) -> list[str]:
    """Return what is odd about episodes, and what to do about it.

    ``choices``: how valid actions are ensured, if the agent asks for it. ``missing``: why there are no token ids.
    """
    notes = []
    rollouts = Rollouts(tuple(outcomes))
    if attempts == 1 and not held_out:
        notes.append(
            "each seed was played once, and a group of one can't be compared: play with attempts=4 or more, or set "
            "train.objective to ppo"
        )
    if rollouts.invalid_share > MOSTLY:
        notes.append(
            f"{rollouts.invalid_share:.0%} of the replies had no valid action: warm_start with demonstrations of the "
            f"form, or have valid_replies name the valid ones{f' ({choices})' if choices else ''}"
        )
    if missing:
        notes.append(f"the engine told no token ids ({missing}), so training renders the texts again")
    if fault := next((outcome.fault for outcome in outcomes if outcome.fault), None):
        notes.append(f"{rollouts.faults} episodes broke off and don't count; the first: {fault}")
    return notes
