"""One episode: observations in, actions out, rewards collected; a rollout of burnish behind it.

Rewards are sent when the episode ends. So an episode that broke off has none, and nothing is ever learnt from it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import Any, Protocol

from burnish.agents.connection import Burnish
from burnish.agents.errors import BadReward, EpisodeOver, NoAction, StepLimit

Message = dict[str, str]
INVALID = "no valid action in the reply"


class Player(Protocol):
    """How an agent describes its environment to the model, and reads the reply."""

    def get_system_prompt(self) -> str: ...
    def format_observation(self, observation: Any) -> str: ...
    def extract_action(self, response: str) -> Any: ...
    def valid_replies(self, observation: Any) -> Sequence[str] | None: ...


@dataclass(frozen=True, slots=True)
class Rules:
    max_steps: int = 100
    """Longer episodes are cut."""
    memory: int | None = None
    """Earlier steps of the episode in each prompt; None: all of them."""
    max_tokens: int = 64
    """Of a reply."""
    sampling: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of each request. By default the model's own distribution is sampled, at temperature 1."""
    default_action: Any = None
    """Taken if a reply has no valid action; None: the episode ends there."""
    invalid_penalty: float = -1.0
    """Added to the reward of a step whose reply has no valid action."""

    def __post_init__(self) -> None:
        if self.max_steps < 1 or self.max_tokens < 1 or (self.memory is not None and self.memory < 0):
            raise ValueError(
                "max_steps and max_tokens must be at least 1, and memory at least 0 (None: everything); given: "
                f"{self.max_steps}, {self.max_tokens}, {self.memory}"
            )


@dataclass(slots=True)
class AgentStep:
    observation: str
    reply: str
    valid: bool
    reward: float | None = None
    """What the environment gave; None: nothing yet."""
    penalty: float = 0.0


@dataclass(frozen=True, slots=True)
class Outcome:
    rollout: str
    """Empty if it never began."""
    seed: int | None
    version: int | None
    """Which version played; None: burnish doesn't choose it."""
    reward: float
    """Of all steps, penalties included."""
    steps: int
    invalid: int
    """Replies without a valid action."""
    cut: bool = False
    """It ended at the step limit."""
    fault: str | None = None
    """Why it broke off. Nothing is learnt from it, and its reward doesn't count."""


class Episode:
    """Begins a rollout with the first action."""

    def __init__(self, burnish: Burnish, player: Player, rules: Rules, rollout: Mapping[str, Any]) -> None:
        """``rollout``: what ``POST /v1/rollouts`` is told."""
        self._burnish = burnish
        self._player = player
        self._rules = rules
        self._request = dict(rollout)
        self._rollout: dict[str, Any] | None = None
        self._steps: list[AgentStep] = []
        self._outcome: Outcome | None = None

    @property
    def over(self) -> bool:
        return self._outcome is not None

    def act(self, observation: Any) -> Any:
        """Ask the model for an action.

        Raises EpisodeOver, StepLimit (the episode has ended), NoAction (the same: no valid action, and no default),
        NotRunning, Refused.
        """
        self._check_open("act")
        if len(self._steps) >= self._rules.max_steps:
            self.end(cut=True)
            raise StepLimit(
                f"the episode has taken {self._rules.max_steps} steps, so it ends here with the rewards that it has: "
                "raise max_steps if it needs more"
            )
        if self._rollout is None:
            self._rollout = self._burnish.begin(**self._request)
        text = self._player.format_observation(observation)
        reply = self._burnish.reply(self._rollout["id"], self._messages(text), self._fields(observation))
        action, why = self._action(reply)
        step = AgentStep(text, reply, valid=action is not None)
        self._steps.append(step)
        if action is not None:
            return action
        step.penalty = self._rules.invalid_penalty
        if self._rules.default_action is not None:
            return self._rules.default_action
        self.end()
        raise NoAction(
            f"the reply {reply[:80]!r} has no valid action ({why}), so the episode ends with a reward of "
            f"{step.penalty:g} for it. With default_action it would go on"
        )

    def assign_reward(self, reward: float) -> None:
        """Reward the latest action, once. Raises BadReward, EpisodeOver."""
        self._check_open("take a reward")
        if not self._steps:
            raise EpisodeOver("a reward came before the first action: call act first")
        if isinstance(reward, bool) or not isinstance(reward, Real) or not math.isfinite(reward):
            raise BadReward(
                f"a reward is a finite number, not {reward!r}; step {len(self._steps) - 1} has none"
            )
        if (previous := self._steps[-1].reward) is not None:
            raise BadReward(
                f"step {len(self._steps) - 1} has its reward already, {previous:g}, and {float(reward):g} came for it, "
                "too: call assign_reward once after each act, with the sum"
            )
        self._steps[-1].reward = float(reward)

    def end(self, *, cut: bool = False) -> Outcome:
        """Send the rewards and end the rollout; a second call does nothing. Raises NotRunning, Refused."""
        if self._outcome is None:
            if self._rollout is not None:
                self._send_rewards(self._rollout["id"])
                self._burnish.end(self._rollout["id"])
            self._outcome = self._result(cut=cut)
        return self._outcome

    def abandon(self, fault: str) -> Outcome:
        """End the rollout without rewards: nothing is learnt from it. Raises NotRunning, Refused."""
        if self._outcome is None:
            self._outcome = self._result(fault=fault)
            if self._rollout is not None:
                self._burnish.end(self._rollout["id"])
        return self._outcome

    def _send_rewards(self, rollout: str) -> None:
        """Zeros need not be said, but an episode without any reward would count as not rewarded."""
        any_reward = False
        for number, step in enumerate(self._steps):
            if reward := (step.reward or 0.0) + step.penalty:
                self._burnish.reward(rollout, reward, number, INVALID if step.penalty else None)
                any_reward = True
        if not any_reward:
            self._burnish.reward(rollout, 0.0, None, None)

    def _result(self, *, cut: bool = False, fault: str | None = None) -> Outcome:
        rollout = self._rollout or {}
        return Outcome(
            rollout=rollout.get("id", ""),
            seed=self._request.get("seed"),
            version=rollout.get("version"),
            reward=math.fsum((step.reward or 0.0) + step.penalty for step in self._steps),
            steps=len(self._steps),
            invalid=sum(not step.valid for step in self._steps),
            cut=cut,
            fault=fault,
        )

    def _action(self, reply: str) -> tuple[Any, str]:
        """Return the action in a reply, or None and why there is none."""
        try:
            return self._player.extract_action(reply), "extract_action found none"
        except (ValueError, LookupError) as error:
            return None, str(error) or "extract_action refused it"

    def _fields(self, observation: Any) -> dict[str, Any]:
        fields = {"max_tokens": self._rules.max_tokens, **self._rules.sampling}
        if valid := self._player.valid_replies(observation):
            fields |= self._burnish.choices.fields(valid)
        return fields

    def _messages(self, observation: str) -> list[Message]:
        memory = len(self._steps) if self._rules.memory is None else self._rules.memory
        steps = self._steps[max(0, len(self._steps) - memory) :] if memory else []
        return conversation(
            self._player.get_system_prompt(), [(step.observation, step.reply) for step in steps], observation
        )

    def _check_open(self, purpose: str) -> None:
        if self.over:
            raise EpisodeOver(
                f"the episode has ended, so it can't {purpose}: call terminate_episode, then act begins the next one"
            )


def conversation(system: str, turns: Sequence[tuple[str, str]], observation: str) -> list[Message]:
    """Return the messages of a request: earlier steps are turns of a chat."""
    messages = [{"role": "system", "content": system}] if system else []
    for observed, reply in turns:
        messages += [{"role": "user", "content": observed}, {"role": "assistant", "content": reply}]
    return [*messages, {"role": "user", "content": observation}]
