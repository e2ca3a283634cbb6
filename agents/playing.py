"""Plays many episodes, several at once. An environment that fails costs its episode, not the run."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any, Protocol, SupportsFloat

from burnish.agents.episode import Episode, Outcome
from burnish.agents.errors import AgentError, MissingPackage, NoAction, NotRunning, StepLimit, TooManyFaults
from burnish.agents.rollouts import Rollouts

logger = logging.getLogger(__name__)

AT_ONCE = 4
"""As many as the embedded engine decodes together."""
MOST_FAULTS = 10


class Environment(Protocol):
    """A Gymnasium environment, or anything with the same two methods."""

    def reset(self, *, seed: int | None = None) -> tuple[Any, dict[str, Any]]: ...
    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Return observation, reward, whether it terminated, whether it was truncated, and more."""


Environments = str | Callable[[], Environment]
"""The name of a Gymnasium environment, or what makes one: each thread needs its own."""
Begin = Callable[[int], Episode]
"""Returns the episode for a seed; nothing is asked yet."""


def maker(env: Environments) -> Callable[[], Environment]:
    """Return what makes the environments. Raises MissingPackage, TypeError."""
    if callable(env):
        return env
    if not isinstance(env, str):
        raise TypeError(
            f"env must be the name of a Gymnasium environment, or a function that makes one, not {type(env).__name__}: "
            "several episodes are played at once, and each thread needs its own"
        )
    try:
        import gymnasium
    except ImportError as error:
        raise MissingPackage("gymnasium", "agents", f"the environment {env}") from error
    return lambda: gymnasium.make(env)


def play_episode(episode: Episode, env: Environment, seed: int) -> Outcome:
    """Play one episode to its end, whatever the environment does. Raises NotRunning."""
    try:
        observation, _ = env.reset(seed=seed)
        while True:
            action = episode.act(observation)
            observation, reward, terminated, truncated, _ = env.step(action)
            # Most environments give Python's numbers or NumPy's; assign_reward refuses what is neither.
            episode.assign_reward(reward)  # type: ignore[arg-type]
            if terminated or truncated:
                return episode.end()
    except (NoAction, StepLimit):
        return episode.end()
    except NotRunning:
        raise
    except AgentError as error:
        return _abandoned(episode, str(error))
    except Exception as error:  # an environment may raise anything, and the other episodes go on
        logger.exception("the environment failed with seed %s", seed)
        return _abandoned(episode, f"{type(error).__name__}: {error}")


def _abandoned(episode: Episode, fault: str) -> Outcome:
    try:
        return episode.abandon(fault)
    except NotRunning:
        raise
    except AgentError:  # it has timed out; abandoning it twice changes nothing
        return episode.abandon(fault)


def play(
    begin: Begin,
    env: Environments,
    seeds: Iterable[int],
    *,
    attempts: int,
    at_once: int = AT_ONCE,
    most_faults: int = MOST_FAULTS,
) -> Rollouts:
    """Play each seed so many times.

    Raises NotRunning (the episodes before are kept), TooManyFaults (with what was played in its words).
    """
    if attempts < 1 or at_once < 1:
        raise ValueError(f"attempts and at_once must be at least 1, not {attempts} and {at_once}")
    make = maker(env)
    envs = [make() for _ in range(at_once)]
    free: SimpleQueue[Environment] = SimpleQueue()
    for environment in envs:
        free.put(environment)
    jobs = (seed for seed in seeds for _ in range(attempts))
    outcomes: list[Outcome] = []

    def one(seed: int) -> Outcome:
        used = free.get()
        try:
            return play_episode(begin(seed), used, seed)
        finally:
            free.put(used)

    pool = ThreadPoolExecutor(at_once, thread_name_prefix="episode")
    try:
        for outcome in pool.map(one, jobs):
            outcomes.append(outcome)
            _check_faults(outcomes, most_faults)
    finally:
        pool.shutdown(cancel_futures=True)
        for used in envs:
            if close := getattr(used, "close", None):
                close()
    return Rollouts(tuple(outcomes))


def _check_faults(outcomes: list[Outcome], most: int) -> None:
    """Raises TooManyFaults."""
    faults = [outcome.fault for outcome in outcomes if outcome.fault is not None]
    if len(faults) > most:
        raise TooManyFaults(
            f"{len(faults)} of {len(outcomes)} episodes broke off, and most_faults is {most}; the first: {faults[0]}. "
            "The others are kept"
        )
