"""An agent for any Gymnasium environment that learns from its rewards. It has LlamaGym's shape.

    agent = BlackjackAgent(task="blackjack", batch=64)
    for number in range(640):
        agent.begin_episode(seed=number // 4)  # four attempts at each seed, which are compared
        observation, _ = env.reset(seed=number // 4)
        done = False
        while not done:
            observation, reward, terminated, truncated, _ = env.step(agent.act(observation))
            agent.assign_reward(reward)
            done = terminated or truncated
        print(agent.terminate_episode())

``play``, ``learn``, ``judge`` and ``warm_start`` do the same for many episodes at once.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from burnish.agents import playing
from burnish.agents.connection import Burnish, Json, Version
from burnish.agents.demonstrations import Demonstration, records, store
from burnish.agents.episode import Episode, Outcome, Rules
from burnish.agents.errors import EpisodeOver, Refused
from burnish.agents.playing import AT_ONCE, MOST_FAULTS, Environments
from burnish.agents.rollouts import Rollouts, notes_on
from burnish.agents.trackers import Tracker, tracker_named

logger = logging.getLogger(__name__)

UNFINISHED = {"failed": "failed", "interrupted": "was stopped"}
"""What became of a run that made no version, in words."""
FIGURES = ("samples", "good", "bad", "reward", "steps", "seconds")
"""What a run's result has besides its metrics."""


class GymAgent(ABC):
    """Subclass it, and say how observations become text and replies become actions.

    Episodes are played in several threads, so the methods that a subclass defines must not change the agent.
    """

    def __init__(
        self,
        burnish: Burnish | str | None = None,
        *,
        task: str | None = None,
        batch: int = 0,
        version: Version = "candidate",
        rules: Rules | None = None,
        tracker: str | Tracker | None = None,
    ) -> None:
        """``burnish``: a connection, or its address; None: BURNISH_URL, or the usual one.

        ``task``: episodes of the same task are learnt from together; None: the name of the class. ``batch``:
        ``terminate_episode`` trains after so many episodes; 0: never. ``version``: who plays; "candidate" is the newest
        version, live or not. ``tracker``: "tensorboard", "wandb", "trackio", one of your own, or none.

        Raises MissingPackage, ValueError.
        """
        self.burnish = burnish if isinstance(burnish, Burnish) else Burnish(burnish)
        self.task = task if task is not None else type(self).__name__
        self.version: Version = version
        self.rules = rules or Rules()
        self.batch = batch
        self._tracker = tracker_named(tracker, self.task)
        self._logged = 0
        self._episode: Episode | None = None
        self._waiting: list[Outcome] = []
        """Episodes since the last training."""

    @abstractmethod
    def get_system_prompt(self) -> str:
        """Return the system prompt; "" sends none, and the model's template may then add its own."""

    @abstractmethod
    def format_observation(self, observation: Any) -> str:
        """Return an observation as the user's message."""

    @abstractmethod
    def extract_action(self, response: str) -> Any:
        """Return the action in a reply; None, or a ValueError, means that there is none. See ``find_action``."""

    def valid_replies(self, observation: Any) -> Sequence[str] | None:
        """Return the replies that name valid actions; engines that take a grammar give no others. None: any reply."""
        return None

    # One episode after the other

    def begin_episode(self, *, seed: int | None = None, **fields: Any) -> None:
        """Say what the next episode is: attempts at the same seed are compared. ``fields``: as of ``episode``.

        Without this ``act`` begins an episode that is compared with all others of the task that have no seed.
        Raises EpisodeOver if one is under way.
        """
        if self._episode is not None:
            raise EpisodeOver("an episode is under way: call terminate_episode first")
        self._episode = self.episode(seed=seed, **fields)

    def act(self, observation: Any) -> Any:
        """Return an action; begins an episode if none is under way. Raises as ``Episode.act``."""
        if self._episode is None:
            self._episode = self.episode()
        return self._episode.act(observation)

    def assign_reward(self, reward: float) -> None:
        """Reward the latest action, once. Raises BadReward, EpisodeOver."""
        if self._episode is None:
            raise EpisodeOver(f"a reward of {reward!r} came, and no episode is under way: call act first")
        self._episode.assign_reward(reward)

    def terminate_episode(self, *, train: bool = True) -> dict[str, Any]:
        """End the episode. Returns statistics of the training if the batch was full, else {}.

        Raises EpisodeOver, NotRunning, Refused.
        """
        if self._episode is None:
            raise EpisodeOver("no episode is under way: call act first")
        outcome = self._episode.end()
        self._episode = None
        self._waiting.append(outcome)
        if not (train and self.batch) or len(self._waiting) < self.batch:
            return {}
        rollouts = Rollouts(tuple(self._waiting))
        self._waiting = []
        return rollouts.statistics() | self.learn()

    # Many episodes

    def episode(
        self,
        *,
        seed: int | None = None,
        version: Version | None = None,
        held_out: bool = False,
        **fields: Any,
    ) -> Episode:
        """Return an episode to play by hand, in any thread. ``fields``: group, tags, time_limit_s of its rollout.

        Episodes of the same seed are one group, which is compared.
        """
        request = {"task": self.task, "seed": seed, "group": None if seed is None else str(seed)}
        request |= {"version": self.version if version is None else version, "held_out": held_out}
        return Episode(self.burnish, self, self.rules, request | fields)

    def play(
        self,
        env: Environments,
        seeds: Iterable[int],
        *,
        attempts: int = 1,
        at_once: int = AT_ONCE,
        version: Version | None = None,
        held_out: bool = False,
        most_faults: int = MOST_FAULTS,
    ) -> Rollouts:
        """Play each seed so many times, several episodes at once; attempts at the same seed are compared.

        ``held_out``: nothing is learnt from them. Raises NotRunning, TooManyFaults, MissingPackage.
        """

        def begin(seed: int) -> Episode:
            return self.episode(seed=seed, version=version, held_out=held_out)

        rollouts = playing.play(
            begin, env, seeds, attempts=attempts, at_once=at_once, most_faults=most_faults
        )
        choosing = type(self).valid_replies is not GymAgent.valid_replies
        notes = notes_on(
            rollouts.outcomes,
            attempts,
            held_out,
            choices=self.burnish.choices.words if choosing else None,
            missing=None if held_out else self._missing_tokens(rollouts),
        )
        rollouts = replace(rollouts, notes=tuple(notes))
        for note in notes:
            logger.warning("%s: %s", self.task, note)
        self._track(
            {
                f"held_out/{name}" if held_out else name: figure
                for name, figure in rollouts.statistics().items()
            }
        )
        return rollouts

    def learn(self, *, judge: bool = False, **fields: Any) -> dict[str, Any]:
        """Train on what was played since the last run, and wait for the end; returns figures of the run.

        The version is a candidate, which plays the next episodes. ``judge``: have the gate judge it at once; else
        ``judge`` does later, by what it gets. ``fields``: further members of ``POST /burnish/train``, such as
        objective. Raises NotRunning, Refused (with the reason).
        """
        return self._trained(self.burnish.train(rollouts=self.task, judge=judge, **fields))

    def warm_start(
        self, demonstrations: Iterable[Demonstration], *, judge: bool = False, **fields: Any
    ) -> dict[str, Any]:
        """Imitate demonstrations: imports them, trains on them and waits; returns figures of the run.

        ``judge`` and ``fields`` as of ``learn``. Raises BadDemonstration, NotRunning, Refused.
        """
        lines = records(
            self.task, demonstrations, self.get_system_prompt(), self.format_observation, self.rules.memory
        )
        counts = store(self.burnish, lines)
        return counts | self._trained(self.burnish.train(objective="sft", judge=judge, **fields))

    def judge(
        self, env: Environments, seeds: Iterable[int], *, attempts: int = 1, at_once: int = AT_ONCE
    ) -> dict[str, Any]:
        """Play held-out seeds with the newest version and the live one, and have burnish compare the rewards.

        If the candidate gets more, and the usual checks find nothing, it goes live. Returns ``status`` ("live",
        "candidate" or "rejected") and ``reason``, and both ``Rollouts`` under "candidate" and "live". Raises
        NotRunning, Refused.
        """
        seeds = list(seeds)
        candidate, live = (
            self.play(env, seeds, attempts=attempts, at_once=at_once, version=version, held_out=True)
            for version in ("candidate", "live")
        )
        if len(candidate.versions) != 1:
            raise Refused(
                f"the versions {candidate.versions} played, and one can be judged: judge while nothing is trained or "
                "promoted"
            )
        if candidate.versions == live.versions:
            raise Refused(f"version {candidate.versions[0]} is live, and none is newer: train first")
        verdict = self._trained(self.burnish.judge(candidate.versions[0]))
        return verdict | {"candidate": candidate, "live": live}

    def close(self) -> None:
        if self._tracker:
            self._tracker.close()
        self.burnish.close()

    def _missing_tokens(self, rollouts: Rollouts) -> str | None:
        """Return why the last episode has no token ids, or None."""
        ids = [outcome.rollout for outcome in rollouts.sound if outcome.rollout]
        return self.burnish.missing_tokens(ids[-1]) if ids else None

    def _trained(self, run: Json) -> dict[str, Any]:
        """Return what matters of a run. Raises Refused if it failed."""
        if run["status"] in UNFINISHED:
            raise Refused(f"the run {run['id']} {UNFINISHED[run['status']]}: {run['reason']}")
        summary = run.get("result") or {}
        metrics = dict(summary.get("metrics") or {})
        # The reward among the metrics is that of the last batch.
        metrics |= {name: summary[name] for name in FIGURES if summary.get(name) is not None}
        self._track(
            {f"train/{name}": figure for name, figure in metrics.items() if isinstance(figure, int | float)}
        )
        return metrics | {name: run[name] for name in ("status", "reason", "version")} | {"run": run["id"]}

    def _track(self, values: Mapping[str, float]) -> None:
        if self._tracker:
            self._tracker.log(self._logged, values)
            self._logged += 1
