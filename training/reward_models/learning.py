"""``python -m burnish.training reward DIR``: compares forms of reward models, and writes the best one."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from burnish.gate.preference import Ensemble, Order, write_reward_model
from burnish.gate.preference.saved import RewardManifest, Trial
from burnish.training.errors import JobError, MissingDependency, NotTrainable
from burnish.training.reward_job import MODEL, RewardJob, read_reward_job
from burnish.training.reward_models.forms import EMBEDDINGS, FormOfModel, WordsOrForm, order_of
from burnish.training.reward_models.ratings import Ratings, usable
from burnish.training.weights import prepared_weights

NOTHING = "conversations are too few, or each has ratings of one kind only"


def learn_reward_model(path: Path) -> RewardManifest:
    """Do the job in a directory. Raises JobError, NotTrainable, OSError."""
    job, lines = read_reward_job(path)
    ratings, unused = usable(lines)
    forms, untried = _forms(job)
    trials, best = compared(ratings, forms)
    if best is None:
        raise NotTrainable(
            f"no form of reward model could be tried: {NOTHING}. Rate answers in more conversations"
        )
    form, model = best
    return write_reward_model(
        path / MODEL,
        model,
        chosen=form.name,
        made_at=time.time(),
        objective=form.objective,
        learnt_from=ratings.learnt_from(dict(Counter(job.left_out) + Counter(unused))),
        tried=(*trials, *untried),
    )


def _forms(job: RewardJob) -> tuple[list[FormOfModel], list[Trial]]:
    """Return the forms that can be tried, and why others can't."""
    why = job.why_no_base
    if job.base_weights:
        try:
            return [WordsOrForm(), _form_of_base(job)], []
        except (JobError, MissingDependency) as error:
            why = str(error)
    return [WordsOrForm()], [Trial(name=EMBEDDINGS, reason=why)]


def _form_of_base(job: RewardJob) -> FormOfModel:
    """Return the form that sees texts as the base model's embeddings. Raises JobError, MissingDependency."""
    from burnish.training.reward_models.base_model import loaded_base

    weights = prepared_weights(Path(job.base_weights or ""), job.base_digest, Path(job.weights_cache))
    tokenizer, model = loaded_base(weights, job.threads)
    # It imports torch, which not every burnish has.
    from burnish.training.reward_models.embeddings import Embeddings, embedding_of

    return Embeddings(embedding_of(tokenizer, model), job.seed)


def compared(
    ratings: Ratings, forms: Sequence[FormOfModel]
) -> tuple[list[Trial], tuple[FormOfModel, Ensemble] | None]:
    """Return how each form ordered unseen ratings, and the best one, learnt from all of them."""
    candidates: list[tuple[Trial, FormOfModel, Ensemble | None]] = []
    for form in forms:
        ordered = order_of(form, ratings)
        model = form.learn(ratings) if ordered else None
        candidates.append((_trial(form, ordered), form, model))
    able = [(trial.share or 0.0, form, model) for trial, form, model in candidates if model]
    best = max(able, key=lambda candidate: candidate[0]) if able else None
    return [trial for trial, _, _ in candidates], (best[1], best[2]) if best else None


def _trial(form: FormOfModel, ordered: Order | None) -> Trial:
    if ordered is None:
        return Trial(name=form.name, reason=NOTHING)
    return Trial(name=form.name, share=ordered.share, error=ordered.error)
