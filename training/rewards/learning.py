"""``python -m burnish.training reward DIR``: compares forms of reward models on unseen ratings, writes the best one."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from burnish.gate.confidence import order_error
from burnish.gate.rewards import (
    Ensemble,
    Order,
    order,
    ridges,
)
from burnish.gate.rewards.files import RewardManifest, Trial, write_reward_model
from burnish.gate.rewards.preference_model import fit_views
from burnish.system.memory import available_bytes
from burnish.training.errors import JobError, MissingDependency, NotTrainable
from burnish.training.rewards.job import MODEL, Ratings, RewardJob, read_reward_job, usable
from burnish.training.weights import prepared_weights

REPEATS = 2
"""Cross-validations whose mean counts: one depends on how the conversations fell into parts."""
EMBEDDINGS = "embeddings"
NOTHING = "conversations are too few, or each has ratings of one kind only"
FP32_BYTES = 2
"""For each byte of weights, which are stored in 16 bits."""
BESIDE_BYTES = 500_000_000
"""torch, and what passes through the model."""
MOST_BYTES = 4_000_000_000
"""Of weights, in 16 bits: two thousand million parameters need seconds for each reply."""


@dataclass(frozen=True, slots=True)
class FormOfModel:
    """One way to learn scores from ratings."""

    name: str
    objective: str
    learn: Callable[[Ratings], Ensemble | None]
    """Returns None if the ratings teach nothing."""

    def order(self, ratings: Ratings) -> Order | None:
        """Cross-validate all of it: whatever a form chooses by itself is chosen without the unseen replies."""
        good, shares = ratings.good, []
        for seed in range(REPEATS):
            scores = np.empty(len(ratings.replies))
            for training, unseen in ratings.folds(seed):
                model = self.learn(ratings.of(training))
                if model is None:
                    return None
                scores[unseen] = model.scores([ratings.replies[place].reply for place in unseen])
            if not np.isfinite(scores).all():
                return None
            shares.append(order(scores[good], scores[~good]).share)
        share, counts = float(np.mean(shares)), (int(good.sum()), int((~good).sum()))
        # By the formula a perfect order has no error. So it is taken for one with half a reply in the wrong place.
        return Order(share, order_error(min(share, 1 - 0.5 / min(counts)), *counts))


def words_or_form(ratings: Ratings) -> Ensemble | None:
    """Learn from words or from form, whichever orders better: the preference model as an ensemble."""
    model = fit_views(ratings.replies)
    return ridges(model) if model else None


WORDS_OR_FORM = FormOfModel(
    "words or form", "ridge regression on good and bad, both classes weighing the same", words_or_form
)


def learn_reward_model(path: Path) -> RewardManifest:
    job, lines = read_reward_job(path)
    ratings, unused = usable(lines)
    forms, why = [WORDS_OR_FORM], job.why_no_base
    if job.base_weights:
        try:
            forms.append(_form_of_base(job))
        except (JobError, MissingDependency) as error:
            why = str(error)
    able, trials = list[tuple[float, FormOfModel]](), []
    for form in forms:
        if unseen := form.order(ratings):
            able.append((unseen.share, form))
            trials.append(Trial(name=form.name, share=unseen.share, error=unseen.error))
        else:
            trials.append(Trial(name=form.name, reason=NOTHING))
    if len(forms) == 1:
        trials.append(Trial(name=EMBEDDINGS, reason=why))
    best = max(able, key=lambda pair: pair[0])[1] if able else None
    model = best.learn(ratings) if best else None
    if best is None or model is None:
        raise NotTrainable(
            f"no form of reward model could be tried: {NOTHING}. Rate answers in more conversations"
        )
    return write_reward_model(
        path / MODEL,
        model,
        chosen=best.name,
        made_at=time.time(),
        objective=best.objective,
        learnt_from=ratings.learnt_from(dict(Counter(job.left_out) + Counter(unused))),
        tried=tuple(trials),
    )


def _form_of_base(job: RewardJob) -> FormOfModel:
    """Return the form that sees texts as the base model's embeddings. Raises JobError, MissingDependency."""
    weights = prepared_weights(Path(job.base_weights or ""), job.base_digest, Path(job.weights_cache))
    _check_room(weights)
    try:  # not every burnish has torch
        from burnish.training.rewards.embeddings import OBJECTIVE, embedding_of, learn
    except ImportError as error:
        raise MissingDependency.because(error) from error
    embedding = embedding_of(weights, job.threads)
    return FormOfModel(EMBEDDINGS, OBJECTIVE, lambda ratings: learn(embedding, ratings, job.seed))


def _check_room(weights: Path) -> None:
    size = sum(file.stat().st_size for file in weights.glob("*.safetensors"))
    if size > MOST_BYTES:
        raise JobError(
            f"the base model has {size / 1e9:.1f} GB of weights, too many to look at each reply with it"
        )
    needed, free = FP32_BYTES * size + BESIDE_BYTES, available_bytes()
    if free is not None and free < needed:
        raise JobError(
            f"the base model needs {needed / 1e9:.1f} GB of memory, and {free / 1e9:.1f} GB are free"
        )
