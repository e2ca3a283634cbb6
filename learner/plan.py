"""What a run is asked to do, and its plan."""

from __future__ import annotations

from dataclasses import dataclass

from burnish.gate.rewards import RatedReply
from burnish.learner import export
from burnish.proxy.log import Rating
from burnish.training.job import Episode, JobSpec, Objective


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What the user asks of a run, beyond the settings."""

    force: bool = False
    """Train on ratings of one kind, too."""
    refresh: bool = False
    """From the base model, on all ratings, whatever the live version has learnt."""
    rlhf: bool = False
    """A warm start on demonstrations, a reward model from the ratings, then a policy gradient against it."""
    objective: Objective | None = None
    """Instead of ``train.objective``."""
    rollouts: str | None = None
    """Learn from the rollouts of this task, and not from ratings."""
    judge: bool = True
    """False: the version stays a candidate, to be judged later."""
    version: int | None = None
    """Train nothing: judge this candidate."""

    @property
    def by_ratings(self) -> bool:
        """Whether there must be ratings of both kinds."""
        return self.rollouts is None and self.version is None


AS_SET = RunOptions()


@dataclass(frozen=True, slots=True)
class UsableRatings:
    """All ratings that can be learnt from, including those that were, as far as the gate needs them."""

    completion_ids: tuple[str, ...]
    replies: tuple[RatedReply, ...]
    """The latest ones that say good or bad, earliest first: of these the preference model is made."""


@dataclass(frozen=True, slots=True)
class RunPlan:
    """The plan of a run, before anything is written."""

    run_id: str
    parent: int
    """The version that training starts from; 0 = the base model."""
    incumbent: int
    """The live version, with which the candidate is compared: the parent, unless the run starts from the base model."""
    spec: JobSpec
    usable_ratings: UsableRatings
    choices: tuple[export.ChosenRating, ...] = ()
    """The ratings of the job. Their texts are read when it is written."""
    held_out: tuple[Rating, ...] = ()
    """The gate judges by these."""
    episodes: tuple[Episode, ...] = ()
    """If there are some, the run learns from them alone."""
    judge: bool = True

    @property
    def note(self) -> str | None:
        """The settings that burnish chose or changed, with reasons."""
        return "; ".join(self.spec.notes) or None

    @property
    def training(self) -> list[export.ChosenRating]:
        return [choice for choice in self.choices if not choice.held_out]
