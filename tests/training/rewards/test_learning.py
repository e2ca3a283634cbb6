"""Reward models on a tiny base: all forms are tried on unseen conversations, and the best one is saved."""

from __future__ import annotations

import hashlib
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from burnish.adapters.errors import UnreadableRewardModel
from burnish.gate.rewards import PlainReply, read_reward_model, write_reward_model
from burnish.gate.rewards.features import Embedding
from burnish.gate.rewards.files import LearntFrom
from burnish.training.errors import NotTrainable
from burnish.training.rewards.job import MODEL, RatingLine, RewardJob, usable, write_reward_job
from burnish.training.rewards.learning import learn_reward_model
from tests.support.jobs import Base
from tests.support.rated import sentence

torch = pytest.importorskip("torch")

from burnish.training.rewards import embeddings  # noqa: E402

ABOUT: dict[str, Any] = {
    **{"chosen": "e", "made_at": 0.0, "objective": "o", "tried": ()},
    "learnt_from": LearntFrom(good=1, bad=1, graded=0, pairs=0, conversations=2),
}


def lines(count: int = 40, seed: int = 0) -> list[RatingLine]:
    dice = random.Random(seed)
    texts = [sentence(dice, liked=n % 2 == 0) for n in range(count)]
    return [
        RatingLine(
            conversation_id=f"c{n}", prompt="Tell me.", text=text, finished=True, reward=1 - 2 * (n % 2)
        )
        for n, text in enumerate(texts)
    ]


def test_all_forms_are_compared_and_the_best_one_is_saved(tmp_path: Path, tiny: Base) -> None:
    gguf, cache = str(tiny.gguf), str(tiny.weights_cache)
    base = RewardJob(base_weights=gguf, base_digest=tiny.digest, weights_cache=cache)
    write_reward_job(tmp_path / "job", base, lines())
    manifest = learn_reward_model(tmp_path / "job")
    tried = {each.name: each for each in manifest.tried}
    assert tried.keys() == {"words or form", "embeddings"}
    assert all(each.order for each in tried.values()), tried
    assert manifest.chosen == max(tried.values(), key=lambda form: form.share or 0).name
    assert (tried["words or form"].share or 0) > 0.9

    again, model = read_reward_model(tmp_path / "job" / MODEL)
    assert again == manifest
    dice = random.Random(9)
    good, bad = model.scores([PlainReply("", sentence(dice, liked=liked), True) for liked in (True, False)])
    assert bad < 0.5 < good


def test_without_a_base_the_other_form_says_why(tmp_path: Path) -> None:
    write_reward_job(tmp_path / "job", RewardJob(why_no_base="engine = none"), lines())
    untried = [form for form in learn_reward_model(tmp_path / "job").tried if not form.order]
    assert {form.name: form.reason for form in untried} == {"embeddings": "engine = none"}


def embedding(count: int = 24, width: int = 6) -> Embedding:
    """A vocabulary in which the liked word stands apart."""
    dice = np.random.default_rng(0)
    pieces = ("usually", "never", " ", *(chr(ord("a") + n) for n in range(count)))
    table = dice.normal(0, 0.1, (len(pieces), width)).astype(np.float32)
    table[0, 0], table[1, 0] = 3.0, -3.0
    return Embedding(pieces, table)


def test_an_mlp_on_embeddings_orders_unseen_replies_and_comes_back_as_it_was(tmp_path: Path) -> None:
    ratings, _ = usable(lines(64))
    model = embeddings.learn(embedding(), ratings, seed=0)
    dice = random.Random(5)
    kinds = [[sentence(dice, liked=liked) for _ in range(20)] for liked in (True, False)]
    good, bad = ([PlainReply("", text, True) for text in texts] for texts in kinds)
    assert model.scores(good).min() > model.scores(bad).max()

    write_reward_model(tmp_path / "m", model, **ABOUT)
    _, again = read_reward_model(tmp_path / "m")
    np.testing.assert_allclose(again.scores(good), model.scores(good), atol=2e-3)


def test_texts_are_cut_into_the_longest_pieces_and_strange_characters_passed_over() -> None:
    known = Embedding(("a", "ab", "abc", "c"), np.eye(4, dtype=np.float32))
    (row,) = known.table([PlainReply("ab", "abcaé€c", True)])
    assert row.tolist() == [0, 1, 0, 0, 1 / 3, 0, 1 / 3, 1 / 3]
    (empty,) = known.table([PlainReply("", "€", True)])
    assert empty.tolist() == [0.0] * 8


def test_the_loss_is_the_formula_of_each_kind_of_rating() -> None:
    logits = torch.tensor([[0.5, -1.0, 2.0, 0.0]], dtype=torch.float64)
    said = embeddings.Targets(
        thumbs=torch.tensor([1.0, -1.0, 0.0, 0.0]),
        thumb_weights=torch.tensor([[0.5, 0.5, 0.0, 0.0]]),
        grades=torch.tensor([0.5, 0.5, 0.75, 0.5]),
        grade_weights=torch.tensor([[0.0, 0.0, 1.0, 0.0]]),
        better=torch.tensor([2]),
        worse=torch.tensor([3]),
        pair_weights=torch.tensor([[1.0]]),
    )
    sigmoid = lambda x: 1 / (1 + np.exp(-x))  # noqa: E731
    thumbs = -0.5 * np.log(sigmoid(0.5)) - 0.5 * np.log(sigmoid(1.0))
    expected = thumbs + (sigmoid(2.0) - 0.75) ** 2 - np.log(sigmoid(2.0))
    assert float(embeddings.loss(logits, said)) == pytest.approx(expected, rel=1e-6)


def test_each_member_sees_both_classes_alike_and_other_ratings() -> None:
    graded = RatingLine(conversation_id="g", prompt="", text="x", finished=True, reward=0.5)
    better = RatingLine(conversation_id="p", prompt="", text="y", finished=True, reward=None, worse=(0,))
    ratings, _ = usable([*lines(48)[:45], graded, better])
    said = embeddings.targets(ratings, seed=0)
    for weights in (said.grade_weights, said.pair_weights):
        assert set(weights.sum(dim=1).round().tolist()) <= {0.0, 1.0}
    good = (said.thumb_weights * (said.thumbs > 0)).sum(dim=1)
    bad = (said.thumb_weights * (said.thumbs < 0)).sum(dim=1)
    torch.testing.assert_close(good, torch.full((embeddings.MEMBERS,), 0.5))
    torch.testing.assert_close(bad, torch.full((embeddings.MEMBERS,), 0.5))
    assert not torch.equal(said.thumb_weights[0], said.thumb_weights[1])


def test_a_cross_validation_never_parts_a_conversation() -> None:
    same = [each.model_copy(update={"conversation_id": f"c{n // 4}"}) for n, each in enumerate(lines(48))]
    ratings, _ = usable(same)
    for seen, unseen in ratings.folds(0):
        groups = [{ratings.groups[each] for each in places} for places in (seen, unseen)]
        assert not groups[0] & groups[1]
        assert len(seen) + len(unseen) == 48


def test_feedback_that_says_nothing_is_counted() -> None:
    neutral = RatingLine(conversation_id="n", prompt="", text="x", finished=True, reward=None)
    _, left_out = usable([*lines(), neutral])
    assert left_out == {"neither good nor bad": 1}
    with pytest.raises(NotTrainable, match="0 good and 0 bad"):
        usable([neutral] * 50)


def test_weights_of_another_size_or_with_code_in_them_are_refused(tmp_path: Path) -> None:
    ratings, _ = usable(lines())
    model = embeddings.learn(embedding(), ratings, seed=0)

    def refused(name: str, **arrays: np.ndarray) -> str:
        """Write other arrays under a manifest that names them; return why they are refused."""
        path = tmp_path / name
        write_reward_model(path, model, **ABOUT)
        with np.load(path / "weights.npz") as kept:
            whole = {name: kept[name] for name in kept} | arrays
        np.savez(path / "weights.npz", **whole)
        content = (path / "weights.npz").read_bytes()
        sums = {"weights_bytes": len(content), "weights_sha256": hashlib.sha256(content).hexdigest()}
        manifest = json.loads((path / "reward.json").read_bytes())
        (path / "reward.json").write_text(json.dumps(manifest | sums))
        with pytest.raises(UnreadableRewardModel) as caught:
            read_reward_model(path)
        return str(caught.value)

    assert "mean has the shape (3,), not (12,)" in refused("size", mean=np.zeros(3))
    assert "no numbers" in refused("nan", out_bias=np.full(5, np.nan))
    assert "allow_pickle" in refused("code", out=np.array([print], dtype=object))
