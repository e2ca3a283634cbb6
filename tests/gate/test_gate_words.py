"""A verdict in plain words: what a page shows to people who don't know what a nat is."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from burnish.gate import Evidence, in_words, judge
from tests.gate.test_gate import DAMAGE, HEALTHY, LIKED

JARGON = re.compile(r"\b(KL|nats?|loss|token|correlation|gate|candidate)\b")


@pytest.mark.parametrize(
    ("evidence", "headline"),
    [
        (LIKED, "It passed the checks: You would like its replies better, judging by the length"),
        (
            replace(HEALTHY, candidate=DAMAGE["repetitive"]),
            "It failed the checks: Repetitive replies: 12 of 12",
        ),
        (replace(HEALTHY, kl_per_token=0.9), "It failed the checks: It moved too far from the base model."),
        (replace(HEALTHY, general_loss=9.0), "It failed the checks: It no longer reads ordinary text"),
        (replace(HEALTHY, held_out=()), "The checks could not decide: none failed, but nothing proves"),
        (replace(HEALTHY, candidate=()), "The checks could not decide: "),
    ],
)
def test_the_headline_is_the_decision_and_its_first_reason(evidence: Evidence, headline: str) -> None:
    found = in_words(judge(evidence).model_dump(mode="json"))
    assert found["headline"].startswith(headline)
    assert [group["kind"] for group in found["groups"]] == ["better", "sound", "reported"]
    shown = [found["headline"], *(check["plain"] for check in found["checks"])]
    assert not [words for words in shown if JARGON.search(words)]


def test_a_verdict_of_an_earlier_release_shows_what_it_has() -> None:
    old = {"name": "kl", "passed": True, "value": 0.1, "limit": 0.6, "text": "moved a bit"}
    found = in_words({"outcome": "undecided", "reason": "?", "checks": [old]})
    assert found["groups"] == [{"kind": "sound", "title": "is it sound?"}]
    assert found["checks"][0]["plain"] == "moved a bit"
