"""What a judge did in figures, with the biases that judges are known for; a file keeps the reports."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, get_args

import orjson

from burnish.gate.confidence import wilson
from burnish.parts.judging.asking import FAULTS, Fault
from burnish.parts.judging.judgement import Outcome, ReplyJudgement
from burnish.parts.judging.principles import Principles

logger = logging.getLogger(__name__)

FILE = "judge.jsonl"
"""One report a line, without texts of users."""
MOST_REPORTS = 200
"""Latest reports that are read."""
HALF = 0.5
LEAST_COMPARED = 4
"""Fewer comparisons show no habit."""
TIES = "more than half of the comparisons are ties: the principles may contradict each other, or the judge can't tell"
LONGER = "the judge prefers the longer reply more often than chance explains: it may go by length"
SHORTER = (
    "the judge prefers the shorter reply more often than chance explains: fine if a principle asks for it"
)
PLACE = (
    "the judge picks one place more often than chance explains; such picks are ties, so they teach nothing"
)


@dataclass(frozen=True, slots=True)
class Share:
    count: int
    of: int
    lower: float
    upper: float
    """Bounds of the true share."""

    @property
    def by_chance(self) -> bool:
        """Whether a coin could have done that."""
        return self.lower <= HALF <= self.upper


def share(count: int, of: int) -> Share:
    return Share(count, of, *wilson(count, of))


@dataclass(frozen=True, slots=True)
class JudgeReport:
    created_at: float
    """Seconds since the epoch, UTC."""
    model: str
    principles: tuple[str, ...]
    digest: str
    """Of the principles; the tag of the stored feedback ends with it."""
    asked: int
    """Answers that the judge was asked about."""
    outcomes: dict[Outcome, int]
    faults: dict[Fault, int]
    """Failures by kind."""
    first_faults: dict[Fault, str]
    """The first of each kind in words."""
    stored: int
    """Pieces of feedback."""
    ties: Share
    """Of the comparisons."""
    longer_preferred: Share
    """Of the preferences between replies of different length."""
    first_picked: Share
    """Of the comparisons in which it picked the same place in both orders: those with the first place."""
    undecided: tuple[str, ...]
    """IDs of the answers that got no feedback, though the judge didn't fail: they aren't judged again by the same
    principles."""
    ended: str | None
    """Why it ended before all answers were judged."""

    @property
    def failed(self) -> int:
        return self.outcomes["failed"]

    def warnings(self) -> list[str]:
        warnings = []
        if self.ties.of >= LEAST_COMPARED and self.ties.count > HALF * self.ties.of:
            warnings.append(TIES)
        if not self.longer_preferred.by_chance:
            warnings.append(LONGER if self.longer_preferred.lower > HALF else SHORTER)
        if not self.first_picked.by_chance:
            warnings.append(PLACE)
        return warnings


def report(
    judgements: Sequence[ReplyJudgement],
    principles: Principles,
    *,
    model: str,
    created_at: float,
    end_reason: str | None,
) -> JudgeReport:
    outcomes = Counter(judgement.outcome for judgement in judgements)
    faults = Counter(judgement.fault for judgement in judgements if judgement.fault)
    failures = [
        (judgement.fault, judgement.details or "") for judgement in reversed(judgements) if judgement.fault
    ]
    decided = [judgement for judgement in judgements if judgement.outcome in ("reply", "revision")]
    lengths = [
        (len(judgement.revision or "") - judgement.reply_characters, judgement.outcome == "revision")
        for judgement in decided
    ]
    places = [judgement.picks for judgement in judgements]
    first, second = places.count(("A", "A")), places.count(("B", "B"))
    return JudgeReport(
        created_at=created_at,
        model=model,
        principles=principles.texts,
        digest=principles.digest,
        asked=len(judgements),
        outcomes={kind: outcomes[kind] for kind in get_args(Outcome)},
        faults={kind: faults[kind] for kind in FAULTS if faults[kind]},
        first_faults=dict(failures),
        stored=sum(judgement.feedback_id is not None for judgement in judgements),
        ties=share(outcomes["tie"], outcomes["tie"] + len(decided)),
        longer_preferred=share(
            sum((longer > 0) is revised for longer, revised in lengths if longer),
            sum(longer != 0 for longer, _ in lengths),
        ),
        first_picked=share(first, first + second),
        undecided=tuple(
            judgement.completion_id
            for judgement in judgements
            if judgement.outcome in ("tie", "faultless", "unchanged")
        ),
        ended=end_reason,
    )


def to_json(report: JudgeReport) -> dict[str, Any]:
    return {"object": "judge_report", **asdict(report), "warnings": report.warnings()}


def keep(data_dir: Path, report: JudgeReport) -> None:
    # What the judge wrote may quote a user, who may want to be forgotten.
    words = {kind: FAULTS[kind] for kind in report.faults}
    try:
        with (data_dir / FILE).open("ab") as file:
            file.write(orjson.dumps(to_json(report) | {"first_faults": words}) + b"\n")
    except OSError as error:
        # The feedback is stored, and the caller gets the report.
        logger.warning("the report of the judge wasn't kept: %s", error)


def kept(data_dir: Path) -> list[dict[str, Any]]:
    """Return the latest reports, newest first; a line that a crash cut off is left out."""
    try:
        lines = (data_dir / FILE).read_bytes().splitlines()[-MOST_REPORTS:]
    except FileNotFoundError:
        return []
    return [report for line in reversed(lines) if (report := _read(line))]


def undecided(reports: Sequence[dict[str, Any]], digest: str, model: str) -> set[str]:
    """Return the answers on which a model decided nothing by the same principles."""
    same = [report for report in reports if (report.get("digest"), report.get("model")) == (digest, model)]
    return {name for report in same for name in report.get("undecided", ())}


def _read(line: bytes) -> dict[str, Any] | None:
    try:
        report = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    return report if isinstance(report, dict) else None
