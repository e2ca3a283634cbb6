"""Measure a candidate with the model; the gate judges the figures."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from importlib.resources import files
from typing import Any

from burnish.gate.evidence import CommentFit, HeldOutReply
from burnish.gate.replies import last_question, on_topic, topics
from burnish.training.backends.base import Logps
from burnish.training.comments import pooled, with_comments
from burnish.training.compared import compared
from burnish.training.dataset import Run
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
    general, unread = _general(backend.renderer), compared(samples, backend.renderer).different
    phases = Phases(job.phases)
    phases.begin("scoring")
    scores = _Scores(Run(job, spec, backend))
    evaluation = Evaluation(
        run_id=spec.run_id,
        held_out=scores.held_out(
            sample for sample in samples if sample.held_out and sample.completion_id not in unread
        ),
        words=scores.words(samples, rollouts, phases),
        related=scores.related(rollouts),
        kl_per_token=scores.kl(rollouts),
        general_loss=-_mean(backend.logps([general], job.adapter)),
        general_loss_reference=-_mean(scores.bare([general])),
        weight_change=backend.weight_change(job.adapter),
        seconds=time.monotonic() - started,
        peak_rss_bytes=peak_rss_bytes(),
    )
    job.finish(evaluation)
    return evaluation


class _Scores:
    """Several figures ask for the base model's scores of the same replies, so each is scored once."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._logps: dict[Rendered, Logps] = {}

    def bare(self, sequences: Sequence[Rendered]) -> list[Logps]:
        new = [sequence for sequence in dict.fromkeys(sequences) if sequence not in self._logps]
        self._logps.update(zip(new, self._run.backend.logps(new, "bare"), strict=True))
        return [self._logps[sequence] for sequence in sequences]

    def held_out(self, samples: Iterable[Sample]) -> tuple[HeldOutReply, ...]:
        spec, job, backend = self._run.spec, self._run.job, self._run.backend
        adapter = spec.incumbent_adapter or (None if spec.incumbent_is_base else spec.parent_adapter)
        examples = self._run.examples(samples)
        tokens = [example.tokens for example in examples]
        incumbent = backend.logps(tokens, job.path / adapter) if adapter else self.bare(tokens)
        return tuple(
            HeldOutReply(sample.conversation_id, sample.reward, sample.weight, _mean([new]), _mean([old]))
            for sample, new, old in zip(
                (example.sample for example in examples),
                backend.logps(tokens, job.adapter),
                incumbent,
                strict=True,
            )
        )

    def words(
        self, samples: Sequence[Sample], rollouts: Sequence[PolicyReply], phases: Phases
    ) -> tuple[CommentFit, ...]:
        """Score each pair of replies by a comment: its own prompt's, else one of the others in turn."""
        own = pooled(samples, seed=0)
        comments = list(own.values())
        fits: dict[str, dict[str, float]] = {}
        prompts = list(dict.fromkeys(rollout.prompt_id for rollout in rollouts))
        for rollout in phases.each(rollouts if comments else ()):
            # Comments are about texts, and go to the end of a question.
            if rollout.called or not last_question(rollout.messages):
                continue
            # By prompt: both replies to it are told the same.
            wording = own.get(rollout.prompt_id) or comments[prompts.index(rollout.prompt_id) % len(comments)]
            with suppress(Unrenderable):
                contexts = (with_comments(rollout.messages, wording), rollout.messages)
                informed, plain = self.bare([self._rendered(rollout, context) for context in contexts])
                fits.setdefault(rollout.prompt_id, {})[rollout.policy] = _mean([informed]) - _mean([plain])
        return tuple(
            CommentFit(prompt, pair["candidate"], pair["incumbent"])
            for prompt, pair in fits.items()
            if len(pair) == len(_POLICIES)
        )

    def related(self, rollouts: Sequence[PolicyReply]) -> tuple[Related, ...]:
        """Score the replies without a word of their question under their own prompt and under a few others.

        Not those with tools at hand: in the midst of an agent's work, the last question says little of what is on
        topic.
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
            names = [prompts[place], *(prompts[place + 1 :] + prompts[:place])[:OTHER_PROMPTS]]
            with suppress(Unrenderable):
                at_home, *abroad = self.bare([self._rendered(rollout, contexts[name]) for name in names])
                pmi = _mean([at_home]) - _mean(abroad)
                scores.append(Related(policy=rollout.policy, prompt_id=rollout.prompt_id, pmi=pmi))
        return tuple(scores)

    def kl(self, rollouts: Sequence[PolicyReply]) -> float | None:
        """Return KL(candidate ‖ bare) per token on the candidate's own replies: mean of log π − log π_ref.

        None when no reply can be scored.
        """
        rendered = []
        for rollout in (rollout for rollout in rollouts if rollout.policy == "candidate"):
            with suppress(
                Unrenderable
            ):  # e.g. an empty, cut reply has no token; the gate counts it on its own
                rendered.append(self._rendered(rollout, rollout.messages))
        if not rendered:
            return None
        return _mean(self._run.backend.logps(rendered, self._run.job.adapter)) - _mean(self.bare(rendered))

    def _rendered(self, rollout: PolicyReply, messages: Sequence[Mapping[str, Any]]) -> Rendered:
        if rollout.error or (rollout.tool_calls and not rollout.finished):
            why = "the tool call was cut off, or the engine could not parse it, so its text is unknown"
            raise Unrenderable(why)
        reply: dict[str, Any] = {"role": "assistant", "content": rollout.reply}
        if rollout.thoughts is not None:
            reply["reasoning_content"] = rollout.thoughts
        if rollout.tool_calls:
            reply["tool_calls"] = list(rollout.tool_calls)
        limit = self._run.spec.hyperparameters.max_tokens
        return self._run.backend.renderer.conversation(
            messages, rollout.tools, reply, rollout.finished, limit, template=rollout.template
        )


def _general(renderer: Renderer) -> Rendered:
    ids = renderer.plain((files("burnish.training") / GENERAL_TEXT).read_text(encoding="utf-8"))
    return Rendered(tuple(ids[:1]), tuple(ids[1:]))


def _mean(scored: Iterable[Logps]) -> float:
    flat = [logp for logps in scored for logp in logps]
    return sum(flat) / len(flat)
