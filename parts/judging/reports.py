"""The reports of earlier judgings: a file with one JSON object a line, without texts of users."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import orjson

from burnish.parts.judging.asking import FAULTS
from burnish.parts.judging.report import JudgeReport

logger = logging.getLogger(__name__)

FILE = "judge.jsonl"
MOST_REPORTS = 200
"""Latest reports that are read."""


def keep(data_dir: Path, report: JudgeReport) -> None:
    try:
        with (data_dir / FILE).open("ab") as file:
            # What the judge wrote may quote a user, who may want to be forgotten.
            words = {kind: FAULTS[kind] for kind in report.faults}
            file.write(orjson.dumps(to_json(report) | {"first_faults": words}) + b"\n")
    except OSError as error:
        # The feedback is stored, and the caller gets the report.
        logger.warning("the report of the judge wasn't kept: %s", error)


def to_json(report: JudgeReport) -> dict[str, Any]:
    return {"object": "judge_report", **asdict(report), "warnings": report.warnings()}


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
