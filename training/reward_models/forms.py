"""The forms of reward models that are compared."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from burnish.gate.preference import Ensemble, Order, ridges
from burnish.gate.preference.base import Vector
from burnish.gate.preference.preference_model import fit_views
from burnish.training.reward_models.ratings import REPEATS, Places, Ratings, unseen_order

WORDS_OR_FORM, EMBEDDINGS = "words or form", "embeddings"


class FormOfModel(Protocol):
    """One way to learn scores from ratings."""

    name: str
    objective: str

    def learn_and_score(self, ratings: Ratings, training: Places, unseen: Places) -> Vector | None:
        """Learn from some replies; return the scores of others. None: these teach nothing."""
        ...

    def learn(self, ratings: Ratings) -> Ensemble | None:
        """Learn from all; None if they teach nothing."""
        ...


def order_of(form: FormOfModel, ratings: Ratings) -> Order | None:
    """Cross-validate a form, all of it: whatever it chooses by itself is chosen without the unseen replies."""
    repeats = []
    for seed in range(REPEATS):
        scores = np.empty(len(ratings.replies))
        for training, unseen in ratings.folds(seed):
            new = form.learn_and_score(ratings, training, unseen)
            if new is None or not np.isfinite(new).all():
                return None
            scores[unseen] = new
        repeats.append(scores)
    return unseen_order(repeats, ratings.good)


class WordsOrForm:
    """Ridge regression on words or on form, whichever orders better: the preference model as an ensemble."""

    name = WORDS_OR_FORM
    objective = "ridge regression on good and bad, both classes weighing the same"

    def learn_and_score(self, ratings: Ratings, training: Places, unseen: Places) -> Vector | None:
        model = fit_views(ratings.of(training).replies)
        return ridges(model).scores([ratings.replies[place].reply for place in unseen]) if model else None

    def learn(self, ratings: Ratings) -> Ensemble | None:
        model = fit_views(ratings.replies)
        return ridges(model) if model else None
