"""``burnish judge`` before the real small model: much of what it says is nonsense, and all is accounted for."""

from __future__ import annotations

import json

import httpx

from tests.support.burnish import Burnish
from tests.support.patience import within
from tests.support.program import ask, call, said

PRINCIPLES = "- Answer in one sentence.\n- Be friendly.\n"


def test_the_base_model_judges_an_answer_and_all_is_accounted_for(burnish: Burnish) -> None:
    missing = call("judge", "-n", "1", url=burnish.url)
    assert (missing.returncode, "principles.md is missing" in missing.stderr) == (1, True)
    (burnish.data_dir / "principles.md").write_text(PRINCIPLES)
    ask(burnish.url, "What is a river?")
    counts = _counts(burnish)
    done = call("judge", "-n", "1", "--json", url=burnish.url)
    report = json.loads(done.stdout)
    (judgement,) = report["judgements"]
    assert report["model"].endswith("@base")
    assert report["asked"] == 1
    assert sum(report["outcomes"].values()) == 1
    assert done.returncode == report["outcomes"]["failed"] == sum(report["faults"].values())
    assert judgement["critique"] or judgement["fault"], "the model was asked, and answered something"
    after = _counts(burnish)
    assert after["feedback"] - counts["feedback"] == report["stored"]
    assert after["completions"] - counts["completions"] == report["outcomes"]["reply"], "its revision"
    (kept, *_) = said("judge", "reports", url=burnish.url)["data"]
    assert kept["outcomes"] == report["outcomes"]


def _counts(burnish: Burnish) -> dict[str, int]:
    return dict(httpx.get(f"{burnish.url}/burnish/status", timeout=within(60)).json()["counts"])
