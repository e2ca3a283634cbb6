"""What the gate is shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from burnish.adapters.preference_model import RatedReply
from burnish.adapters.tool_calls import Call, Tool, broken, left_in_text


@dataclass(frozen=True, slots=True)
class HeldOutReply:
    """A rated reply that training never saw; log-probabilities are means per token (nats)."""

    conversation_id: str
    reward: float
    """In [-1, 1]; its sign is the class, its size counts as a weight."""
    weight: float
    candidate_logp: float
    incumbent_logp: float


@dataclass(frozen=True, slots=True)
class SampledReply:
    """A reply that the engine sampled from one of the two versions."""

    prompt_id: str
    """Same id = same prompt: the replies are compared in pairs."""
    prompt: str
    """Text of the last user message."""
    text: str
    finished: bool
    """False when a token limit cut it."""
    related: float | None = None
    """How much likelier the bare model finds it under its own prompt than under another (nats per token), where that
    was measured: of replies without a word of the question."""
    tools: tuple[Tool, ...] = ()
    """That the prompt came with."""
    calls: tuple[Call, ...] = ()
    """Of tools. Beside them there often is no text."""
    error: str | None = None
    """What the engine said instead, where it could make no reply of what the model wrote with tools at hand."""

    @property
    def called(self) -> bool:
        """Whether it calls a tool, or fails to: then there is no text to be judged as a reply."""
        return bool(self.calls or self.error) or self._written_out

    @property
    def call_broken(self) -> bool:
        """Whether it calls a tool so that the call cannot be run."""
        if self.error or self._written_out or (self.calls and not self.finished):
            return True
        return any(broken(call, self.tools) for call in self.calls)

    @property
    def _written_out(self) -> bool:
        return bool(self.tools) and left_in_text(self.text)


@dataclass(frozen=True, slots=True)
class ToldApart:
    """How well the two replies to one prompt fit what the users said in words, by the bare model (nats per token)."""

    prompt_id: str
    candidate_pmi: float
    incumbent_pmi: float

    @property
    def gain(self) -> float:
        """How much better the candidate's fits."""
        return self.candidate_pmi - self.incumbent_pmi


@dataclass(frozen=True, slots=True)
class Known:
    """A simple fact that both versions were asked for."""

    question: str
    candidate: bool
    """Whether its answer was right."""
    incumbent: bool


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that the gate looks at."""

    held_out: tuple[HeldOutReply, ...]
    rated: tuple[RatedReply, ...]
    """All replies with a rating, also those that training saw: what pleases is a fact about the raters."""
    candidate: tuple[SampledReply, ...]
    incumbent: tuple[SampledReply, ...]
    words: tuple[ToldApart, ...]
    """A prompt each; empty when nobody said anything."""
    known: tuple[Known, ...]
    kl_per_token: float | None
    """KL(candidate ‖ bare model) per token on the candidate's own replies, nats; None when none could be scored."""
    general_loss: float
    """Mean negative log-likelihood per token of a neutral text under the candidate, nats."""
    general_loss_reference: float
    """Same under the bare model."""
    weight_change: float
    """‖ΔW‖ / ‖W‖ (Frobenius) of the matrices that the candidate changes."""

    def pairs(self) -> list[Pair]:
        """Pair (candidate, incumbent) replies to the same prompt, in the order of its id."""
        new = {reply.prompt_id: reply for reply in self.candidate}
        old = {reply.prompt_id: reply for reply in self.incumbent}
        return [(new[prompt], old[prompt]) for prompt in sorted(new.keys() & old.keys())]


Pair = tuple[SampledReply, SampledReply]
"""(candidate's, incumbent's)"""


def in_text(pairs: Sequence[Pair]) -> list[Pair]:
    """Return the pairs of which neither reply is a tool call: with one, there are no two texts to compare."""
    return [pair for pair in pairs if not any(reply.called for reply in pair)]
