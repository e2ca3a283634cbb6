"""Imported feedback in training: it counts like any other, and no version of ours is taken for its author."""

from __future__ import annotations

from pathlib import Path

from burnish.learner import export
from burnish.parts.datasets.importing import read_files
from burnish.parts.datasets.records import read_record
from burnish.proxy.feedback.usability import usability_by
from burnish.proxy.log import Log, RatingTally
from burnish.proxy.log.faults import Rules
from tests.parts.datasets.exports import langfuse, lines
from tests.proxy.log.exchanges import capture, rate, user

RULES = Rules({}, "auto", scrub=True)


async def imported(log: Log, path: Path, *, trial: bool = False) -> None:
    found = read_files([path], None, {})
    records = [read_record(each.content) for each in found.lines]
    outcomes = await log.add_records(records, usability_by(RULES), trial=trial)
    assert [each.refused for each in outcomes] == [None] * len(outcomes)


async def test_it_is_ready_for_training_and_off_policy(log: Log, tmp_path: Path) -> None:
    pair = {"prompt": "Tea?", "chosen": "Short.", "rejected": "Very long."}
    own = capture(log, [user("Coffee?")], adapter_version=0)
    await log.completion(own)
    await rate(log, own)
    last = (await log.feedbacks(limit=1))[0].id.partition("_")[2]
    tally = RatingTally(Rules())
    await log.rating_counts(tally, (), "")
    await imported(log, lines(tmp_path / "a", *langfuse()), trial=True)
    assert (await log.rating_counts(tally, (), last)).ready.new == 0
    await imported(log, lines(tmp_path / "a", *langfuse()))
    await imported(log, lines(tmp_path / "b", pair))
    counts = await log.rating_counts(tally, (), last)
    assert (counts.ready.new, counts.ready.pairs) == (2, 1)  # newer than the last run, whenever it was given
    chosen = export.chosen(await log.ratings(), (), export.Policies("sha256:ours"), learnable=False)
    made = await log.rated([each.rating for each in chosen], list)
    versions = {
        rated.completion.prompt: each.behaviour_version for each, rated in zip(chosen, made, strict=True)
    }
    assert versions == {"Coffee?": 0, "What is tea?": None, "Tea?": None}
    lessons = {each.completion.prompt: (each.reward, len(each.worse)) for each in made}
    assert lessons == {"Coffee?": (1.0, 0), "What is tea?": (1.0, 0), "Tea?": (0.0, 1)}


async def test_an_import_is_never_somebodys_last_answer(log: Log, tmp_path: Path) -> None:
    own = capture(log, [user("Coffee?")])
    await log.completion(own)
    await imported(log, lines(tmp_path / "a", *langfuse()))
    assert (await log.resolve(last_of="local")).id == own
    assert (await log.completions(1))[0].id == own
