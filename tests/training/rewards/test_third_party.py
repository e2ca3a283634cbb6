"""A foreign reward model: what it says, and in which words a wrong one is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from burnish.training.errors import JobError

pytest.importorskip("torch")

from burnish.training.rewards.third_party import Classifier
from tests.support.classifier import classifier


def changed(path: Path, **members: Any) -> Path:
    file = path / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | members))
    return path


def test_a_classifier_scores_each_reply_by_its_conversation(tmp_path: Path) -> None:
    model = Classifier(str(classifier(tmp_path)))
    asked = [{"role": "user", "content": "river"}]
    first, second = model.score(asked, ["usually green", "never stone"])
    assert 0 < first < 1
    assert first != second
    assert model.score(asked, ["usually green"]) == [first], "alone or with others"
    assert model.score([{"role": "user", "content": "music"}], ["usually green"]) != [first]


def test_what_is_no_reward_model_is_refused_in_words(tmp_path: Path) -> None:
    wrong = {
        "3 labels; expected one": classifier(tmp_path / "labels", labels=3),
        "is LlamaForCausalLM; expected a sequence classifier": classifier(tmp_path / "causal", head=False),
        "needs code of its own, which burnish never runs": changed(
            classifier(tmp_path / "code"), auto_map={"AutoModelForSequenceClassification": "evil.Model"}
        ),
        "can't be loaded": changed(classifier(tmp_path / "size"), hidden_size=32),
        "downloaded before": tmp_path / "nothing",
    }
    named = {"architectures": ["LlamaForSequenceClassification"], "num_labels": 1}
    wrong["lacks weights (score.weight)"] = changed(classifier(tmp_path / "headless", head=False), **named)
    for says, path in wrong.items():
        with pytest.raises(JobError) as refused:
            Classifier(str(path))
        assert says in str(refused.value)
