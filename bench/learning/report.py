"""The report: tables for the terminal and in Markdown, and the limits of ``--quick``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich import box
from rich.table import Table

from bench.learning.figures import (
    SETTLED_HEADER,
    SETTLED_TITLE,
    Group,
    Record,
    Rows,
    Seeds,
    grouped,
    header,
    rows,
    settled_rows,
)
from bench.learning.plots import curves, overview
from bench.learning.rates import Rate

QUICK_LIMITS = {"brief": 0.55, "brief-cold": 0.3}
"""Least joint share after the last count: two standard errors below what runs reached (.75 to 1, .43 to .58)."""
SHOWN = ("arm", "ratings", "satisfied", "joint", "topic", "facts", "at length", "KL", "gate")
"""What a terminal has room for; the file has all."""
QUICK_EMPTY = 0.1
"""Most near-empty answers there."""
QUICK_AT_LENGTH = 0.3
"""Least share of answers at length when asked for one, of 48: half of what runs reached (.56, .65)."""
OVERVIEW = "overview.png"
RATES_HEADER = ["preference", "wants", "the program asks for", "satisfied", "joint"]


@dataclass(frozen=True, slots=True)
class Check:
    """A limit, and whether it held."""

    what: str
    passed: bool


def checks(records: Sequence[Record]) -> list[Check]:
    """Hold the quick cells to their limits."""
    found = []
    for record in records:
        user, last = record["users"][-1], record["points"][-1]
        joint, least = last.get("joint", 0.0), QUICK_LIMITS[user]
        empty = last.get("near_empty", 1.0)
        given = f"{user} after {last['ratings']} ratings"
        found += [
            Check(f"{given}: {joint:.2f} satisfied and on topic, {least:.2f} at least", joint >= least),
            Check(f"{given}: {empty:.2f} near-empty, {QUICK_EMPTY:.2f} at most", empty <= QUICK_EMPTY),
        ]
        if record["widely"]:
            long, least = last.get("at_length", 0.0), QUICK_AT_LENGTH
            found.append(
                Check(f"{given}: {long:.2f} at length on request, {least:.2f} at least", long >= least)
            )
    return found


def rate_rows(rates: Sequence[Rate]) -> Rows:
    return [
        [each.preference, each.wants, each.program, f"{each.satisfied:.2f}", f"{each.joint:.2f}"]
        for each in rates
    ]


def tables(records: Sequence[Record]) -> list[Table]:
    groups = grouped(records)
    found = [_short(group, arms) for group, arms in groups.items() if group.way != "online"]
    if settled := settled_rows(groups):
        found.append(table(SETTLED_TITLE, SETTLED_HEADER, settled))
    return found


def _short(group: Group, arms: Mapping[str, Seeds]) -> Table:
    columns = header(group)
    kept = [place for place, name in enumerate(columns) if name in SHOWN or name.startswith("for ")]
    content = [[row[place] for place in kept] for row in rows(group, arms)]
    return table(group.name, [columns[place] for place in kept], content)


def table(title: str, columns: Sequence[str], content: Rows) -> Table:
    found = Table(*columns, title=title, title_style="bold", box=box.SIMPLE)
    for row in content:
        found.add_row(*row)
    return found


def write(records: Sequence[Record], out: Path, command: str) -> None:
    """Write ``learning.md`` and its plots. ``command``: what wrote it."""
    groups = grouped(records)
    lines = [
        "# The learning bench, as measured",
        "",
        f"Written by `{command}`. *joint*: satisfied and on topic. Means over seeds ± 95 %.",
        "",
    ]
    if overview(groups, out / OVERVIEW):
        lines += [f"![satisfied and on topic, before and after]({OVERVIEW})", ""]
    for group, arms in groups.items():
        if group.way != "online":
            lines += [f"## {group.name}", ""]
            if curves(arms, out / f"{group.name}.png"):
                lines += [f"![satisfied and on topic by ratings]({group.name}.png)", ""]
            lines += [*markdown(header(group), rows(group, arms)), ""]
    lines += [*settled_section(groups), ""]
    (out / "learning.md").write_text("\n".join(lines), encoding="utf-8")


def settled_section(groups: Mapping[Group, Mapping[str, Seeds]], meaning: Sequence[str] = ()) -> list[str]:
    """Return the heading, ``meaning`` and the table of the groups that learnt online; nothing if none did."""
    settled = settled_rows(groups)
    return [f"## {SETTLED_TITLE}", "", *meaning, *markdown(SETTLED_HEADER, settled)] if settled else []


def write_rates(rates: Sequence[Rate], out: Path, command: str) -> None:
    lines = ["# Base rates, as measured", "", f"Written by `{command}`.", ""]
    lines += [*markdown(RATES_HEADER, rate_rows(rates)), ""]
    out.mkdir(parents=True, exist_ok=True)
    (out / "rates.md").write_text("\n".join(lines), encoding="utf-8")


def markdown(columns: Sequence[str], content: Rows) -> list[str]:
    return [
        "| " + " | ".join(columns) + " |",
        "|---" + "|---:" * (len(columns) - 1) + "|",
        *("| " + " | ".join(row) + " |" for row in content),
    ]
