"""``python -m burnish.training reward DIR``: compares forms of reward models, and writes the best one."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from burnish.gate.preference import Ensemble, Order, write_reward_model
from burnish.gate.preference.saved import RewardManifest, Tried
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
    tried, chosen = compared(ratings, forms)
    if chosen is None:
        raise NotTrainable(
            f"no form of reward model could be tried: {NOTHING}. Rate answers in more conversations"
        )
    form, model = chosen
    return write_reward_model(
        path / MODEL,
        model,
        chosen=form.name,
        made_at=time.time(),
        objective=form.objective,
        learnt_from=ratings.learnt_from(dict(Counter(job.left_out) + Counter(unused))),
        tried=(*tried, *untried),
    )


def _forms(job: RewardJob) -> tuple[list[FormOfModel], list[Tried]]:
    """Return the forms that can be tried, and why others can't."""
    why = job.why_no_base
    if job.base_weights:
        try:
            return [WordsOrForm(), _form_of_base(job)], []
        except (JobError, MissingDependency) as error:
            why = str(error)
    return [WordsOrForm()], [Tried(name=EMBEDDINGS, reason=why)]


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
) -> tuple[list[Tried], tuple[FormOfModel, Ensemble] | None]:
    """Return how each form ordered unseen ratings, and the best one, learnt from all of them."""
    found: list[tuple[Tried, FormOfModel, Ensemble | None]] = []
    for form in forms:
        ordered = order_of(form, ratings)
        model = form.learn(ratings) if ordered else None
        found.append((_tried(form, ordered), form, model))
    able = [(tried.share or 0.0, form, model) for tried, form, model in found if model]
    best = max(able, key=lambda each: each[0]) if able else None
    return [tried for tried, _, _ in found], (best[1], best[2]) if best else None


def _tried(form: FormOfModel, ordered: Order | None) -> Tried:
    if ordered is None:
        return Tried(name=form.name, reason=NOTHING)
    return Tried(name=form.name, share=ordered.share, error=ordered.error)
