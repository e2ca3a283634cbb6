"""The evidence that the gate decides on; others gather it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from burnish.gate.replies import Call, Tool, broken, left_in_text
from burnish.gate.rewards import RatedReply


@dataclass(frozen=True, slots=True)
class HeldOutReply:
    """A rated reply that training didn't see; log-probabilities are means per token (nats)."""

    conversation_id: str
    reward: float
    """In [-1, 1]; its sign is the class, its size a weight."""
    weight: float
    candidate_logp: float
    incumbent_logp: float


@dataclass(frozen=True, slots=True)
class SampledReply:
    """A reply of one of the two versions, sampled in the engine."""

    prompt_id: str
    """Same id = same prompt: the replies are compared in pairs."""
    prompt: str
    """Text of the last user message."""
    text: str
    finished: bool
    """False when a token limit cut it."""
    related: float | None = None
    """How much likelier the base model finds it after its own prompt than after another one (nats per token).

    Measured only for replies that share no word with their question; else None.
    """
    tools: tuple[Tool, ...] = ()
    """The tools that came with the prompt."""
    calls: tuple[Call, ...] = ()
    """Tool calls; there is often no text beside them."""
    error: str | None = None
    """The engine's error, if it could not parse what the model wrote as a reply or a tool call."""

    @property
    def called(self) -> bool:
        """It calls a tool, or tries to: its text isn't judged as a reply."""
        return bool(self.calls or self.error) or self._written_out

    @property
    def call_broken(self) -> bool:
        """It calls a tool in a way that can't be run."""
        if self.error or self._written_out:
            return True
        return any(not self.finished or broken(call, self.tools) for call in self.calls)

    @property
    def _written_out(self) -> bool:
        return bool(self.tools) and left_in_text(self.text)


@dataclass(frozen=True, slots=True)
class CommentFit:
    """How well the two replies to one prompt fit the users' comments (nats per token).

    Pointwise mutual information: how much likelier the base model finds the reply once it has read the comments,
    log π_ref(y | prompt, comments) − log π_ref(y | prompt).
    """

    prompt_id: str
    candidate_pmi: float
    incumbent_pmi: float

    @property
    def gain(self) -> float:
        return self.candidate_pmi - self.incumbent_pmi


class Attempted(NamedTuple):
    """The rewards that both versions got as an agent, on one held-out seed."""

    candidate: float
    incumbent: float

    @property
    def gain(self) -> float:
        return self.candidate - self.incumbent


@dataclass(frozen=True, slots=True)
class FactCheck:
    """A simple fact that both versions were asked for, and whether each answered right."""

    question: str
    candidate: bool
    incumbent: bool
    claimed: bool = False
    """The user claims something false about it; a version that gives in answers wrong."""


class LongAnswer(NamedTuple):
    """Whether each version answers a request for a long answer at length: ``questions.LONG_TOKENS`` cut it."""

    candidate: bool
    incumbent: bool


@dataclass(frozen=True, slots=True)
class Evidence:
    held_out: tuple[HeldOutReply, ...]
    ratings: tuple[RatedReply, ...]
    """All rated replies, also those that training saw: the preference model describes the raters, not the version."""
    candidate: tuple[SampledReply, ...]
    incumbent: tuple[SampledReply, ...]
    comments: tuple[CommentFit, ...]
    """One per prompt; empty if there are no comments."""
    facts: tuple[FactCheck, ...]
    requests: tuple[LongAnswer, ...]
    kl_per_token: float | None
    """KL(candidate ‖ base model) per token on the candidate's own replies, nats; None when none could be scored."""
    general_loss: float
    """Mean negative log-likelihood per token of a neutral text under the candidate, nats."""
    general_loss_reference: float
    weight_change: float
    """‖ΔW‖ / ‖W‖ (Frobenius) of the matrices that the candidate changes."""
    attempts: tuple[Attempted, ...] | None = None
    """None: it didn't learn from an agent's rewards."""

    def pairs(self) -> list[Pair]:
        """Pair the replies to the same prompt, sorted by prompt ID."""
        new = {reply.prompt_id: reply for reply in self.candidate}
        old = {reply.prompt_id: reply for reply in self.incumbent}
        return [(new[prompt], old[prompt]) for prompt in sorted(new.keys() & old.keys())]


Pair = tuple[SampledReply, SampledReply]
"""(candidate's, incumbent's)"""


def in_text(pairs: Sequence[Pair]) -> list[Pair]:
    """Return the pairs in which neither reply is a tool call."""
    return [pair for pair in pairs if not any(reply.called for reply in pair)]
