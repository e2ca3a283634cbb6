"""A verdict in plain words: the decision in one sentence, and what each group of checks is for.

Terminal and page both show these, so they are made here. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

TITLES = {
    "better": "is it better? one proof is enough, and no check may fail",
    "sound": "is it sound?",
    "reported": "other changes (for information)",
}
"""The kinds of checks, in the order in which they are shown."""


def told(verdict: dict[str, Any]) -> dict[str, Any]:
    """Return a stored verdict with its ``headline`` and ``groups``; each check has a ``kind`` and ``plain`` words.

    Verdicts of earlier releases lack kinds and plain words.
    """
    checks = [
        {"kind": "sound"} | check | {"plain": check.get("plain") or check["text"]}
        for check in verdict["checks"]
    ]
    groups = [
        {"kind": kind, "title": title}
        for kind, title in TITLES.items()
        if any(check["kind"] == kind for check in checks)
    ]
    headline = _headline(verdict["outcome"], checks)
    return verdict | {"checks": checks, "headline": headline, "groups": groups}


def _headline(outcome: str, checks: Sequence[dict[str, Any]]) -> str:
    """Return the decision and its first reason in one sentence."""
    proved = [check["plain"] for check in checks if check["kind"] == "better" and check["passed"]]
    failed = [check["plain"] for check in checks if check["passed"] is False]
    unknown = [check["plain"] for check in checks if check["kind"] == "sound" and check["passed"] is None]
    if outcome == "passed":
        return f"It passed the checks: {_first(proved)}"
    if outcome == "rejected":
        return f"It failed the checks: {_first(failed)}"
    if unknown:
        return f"The checks could not decide: {_first(unknown)}"
    return "The checks could not decide: none failed, but nothing proves that it is better"


def _first(reasons: Sequence[str]) -> str:
    if not reasons:  # a verdict of another gate
        return "it gave no reason"
    return reasons[0] + (f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else "")
