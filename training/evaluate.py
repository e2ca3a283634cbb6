"""Measure a candidate with the model; the gate judges the figures."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from importlib.resources import files
from pathlib import Path
from typing import Any

from burnish.gate.evidence import CommentFit, HeldOutReply
from burnish.gate.replies import last_question, on_topic, topics
from burnish.training.backends.base import Logps, Policy, TrainerBackend
from burnish.training.critique import pooled, with_comments
from burnish.training.dataset import examples
from burnish.training.errors import JobError
from burnish.training.job import Evaluation, JobDirectory, PolicyReply, Related, Sample
from burnish.training.loop import clear_outputs, open_backend, peak_rss_bytes
from burnish.training.phases import Phases
from burnish.training.rendering import Rendered, Renderer, Unrenderable

# Ours, written for this, so that nobody's licence and no training set is in it. About 350 tokens.
GENERAL_TEXT = "general_text.txt"
# One other prompt may happen to suit a short reply.
OTHER_PROMPTS = 3
_POLICIES = ("candidate", "incumbent")


def evaluate(job: JobDirectory) -> Evaluation:
    """Score the candidate in ``adapter/`` against its parent and the base model; write ``evaluation.json``.

    Raises JobError (the directory is damaged, or training has not finished), MissingDependency.
    """
    started = time.monotonic()
    spec, samples, rollouts = job.spec(), job.samples(), job.replies()
    if not job.adapter.is_dir():
        raise JobError(f"{job.adapter} is missing: run  python -m burnish.training train {job.path}  first")
    clear_outputs(job, "evaluation.json")
    backend = open_backend(job, spec, None)
    adapter = spec.incumbent_adapter or (None if spec.incumbent_is_base else spec.parent_adapter)
    incumbent: Policy = job.path / adapter if adapter else "bare"
    limit = spec.hyperparameters.max_tokens
    general = _general(backend.renderer)
    bare, phases = _BareScores(backend), Phases(job.phases)
    phases.begin("scoring")
    evaluation = Evaluation(
        run_id=spec.run_id,
        held_out=_held_out(bare, [s for s in samples if s.held_out], job.adapter, incumbent, limit),
        words=_words(bare, samples, rollouts, limit, phases),
        related=_related(bare, rollouts, limit),
        kl_per_token=_kl(bare, rollouts, job.adapter, limit),
        general_loss=-_mean(backend.logps([general], job.adapter)),
        general_loss_reference=-_mean(bare.logps([general])),
        weight_change=backend.weight_change(job.adapter),
        seconds=time.monotonic() - started,
        peak_rss_bytes=peak_rss_bytes(),
    )
    job.finish(evaluation)
    return evaluation


class _BareScores:
    """The base model, which several of the figures ask about the same replies: it scores each once."""

    def __init__(self, backend: TrainerBackend) -> None:
        self.backend = backend
        self._found: dict[Rendered, Logps] = {}

    def logps(self, sequences: Sequence[Rendered]) -> list[Logps]:
        new = [sequence for sequence in dict.fromkeys(sequences) if sequence not in self._found]
        self._found.update(zip(new, self.backend.logps(new, "bare"), strict=True))
        return [self._found[sequence] for sequence in sequences]


def _held_out(
    bare: _BareScores, samples: Sequence[Sample], candidate: Path, incumbent: Policy, max_tokens: int
) -> tuple[HeldOutReply, ...]:
    sequences = examples(samples, bare.backend.renderer, max_tokens)
    tokens = [example.tokens for example in sequences]
    incumbent_logps = bare.logps(tokens) if incumbent == "bare" else bare.backend.logps(tokens, incumbent)
    candidate_logps = bare.backend.logps(tokens, candidate)
    return tuple(
        HeldOutReply(sample.conversation_id, sample.reward, sample.weight, _mean([new]), _mean([old]))
        for sample, new, old in zip(
            (example.sample for example in sequences), candidate_logps, incumbent_logps, strict=True
        )
    )


def _words(
    bare: _BareScores,
    samples: Sequence[Sample],
    rollouts: Sequence[PolicyReply],
    max_tokens: int,
    phases: Phases,
) -> tuple[CommentFit, ...]:
    """Score each pair of replies by a comment: its own prompt's, else one of the others in turn."""
    own = pooled(samples, seed=0)
    comments = list(own.values())
    fits: dict[str, dict[str, float]] = {}
    prompts = list(dict.fromkeys(rollout.prompt_id for rollout in rollouts))
    for rollout in phases.each(rollouts if comments else ()):
        if rollout.called:  # comments are about text
            continue
        # By prompt: both replies to it are told the same.
        wording = own.get(rollout.prompt_id) or comments[prompts.index(rollout.prompt_id) % len(comments)]
        try:
            contexts = (rollout.messages, with_comments(rollout.messages, wording))
            plain, informed = (
                _rendered(rollout, context, bare.backend.renderer, max_tokens) for context in contexts
            )
        except Unrenderable:
            continue
        with_it, without = bare.logps([informed, plain])
        fits.setdefault(rollout.prompt_id, {})[rollout.policy] = _mean([with_it]) - _mean([without])
    return tuple(
        CommentFit(prompt, pair["candidate"], pair["incumbent"])
        for prompt, pair in fits.items()
        if len(pair) == len(_POLICIES)
    )


def _related(bare: _BareScores, rollouts: Sequence[PolicyReply], max_tokens: int) -> tuple[Related, ...]:
    """Score the replies without a word of their question under their own prompt and under a few others.

    Not those with tools at hand: in the midst of an agent's work, the last question says little of what is on topic.
    """
    rollouts = [rollout for rollout in rollouts if not rollout.tools]
    contexts = {rollout.prompt_id: rollout.messages for rollout in rollouts}
    prompts = list(contexts)
    scores = []
    for rollout in rollouts if len(prompts) > 1 else ():
        stems = topics(last_question(rollout.messages))
        if not stems or on_topic(rollout.reply, stems):
            continue
        place = prompts.index(rollout.prompt_id)
        alternatives = [
            contexts[prompt] for prompt in (prompts[place + 1 :] + prompts[:place])[:OTHER_PROMPTS]
        ]
        try:
            own, *elsewhere = (
                _rendered(rollout, context, bare.backend.renderer, max_tokens)
                for context in (rollout.messages, *alternatives)
            )
        except Unrenderable:
            continue
        at_home, *abroad = bare.logps([own, *elsewhere])
        pmi = _mean([at_home]) - _mean(abroad)
        scores.append(Related(policy=rollout.policy, prompt_id=rollout.prompt_id, pmi=pmi))
    return tuple(scores)


def _kl(bare: _BareScores, rollouts: Sequence[PolicyReply], candidate: Path, max_tokens: int) -> float | None:
    """Return KL(candidate ‖ bare) per token on the candidate's own replies: mean of log π − log π_ref.

    None when no reply can be scored.
    """
    rendered = []
    for rollout in (rollout for rollout in rollouts if rollout.policy == "candidate"):
        with suppress(Unrenderable):  # e.g. an empty, cut reply has no token; the gate counts it on its own
            rendered.append(_rendered(rollout, rollout.messages, bare.backend.renderer, max_tokens))
    if not rendered:
        return None
    return _mean(bare.backend.logps(rendered, candidate)) - _mean(bare.logps(rendered))


def _rendered(
    rollout: PolicyReply, messages: Sequence[Mapping[str, Any]], renderer: Renderer, max_tokens: int
) -> Rendered:
    if rollout.error or (rollout.tool_calls and not rollout.finished):
        why = "the tool call was cut off, or the engine could not parse it, so its text is unknown"
        raise Unrenderable(why)
    reply: dict[str, Any] = {"role": "assistant", "content": rollout.reply}
    if rollout.tool_calls:
        reply["tool_calls"] = list(rollout.tool_calls)
    return renderer.conversation(messages, rollout.tools, reply, rollout.finished, max_tokens)


def _general(renderer: Renderer) -> Rendered:
    ids = renderer.plain((files("burnish.training") / GENERAL_TEXT).read_text(encoding="utf-8"))
    return Rendered(tuple(ids[:1]), tuple(ids[1:]))


def _mean(scored: Iterable[Logps]) -> float:
    flat = [logp for logps in scored for logp in logps]
    return sum(flat) / len(flat)
