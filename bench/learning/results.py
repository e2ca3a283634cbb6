"""Write docs/results.md from the records of the grid: ``python -m bench.learning.results > docs/results.md``."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from bench.learning.figures import NOTHING, Group, Record, Rows, Seeds, grouped, header, rows
from bench.learning.report import markdown, settled_section

RECORDS = Path(__file__).resolve().parents[2] / "docs" / "bench" / "results.jsonl"
SHOWN = ("arm", "ratings", "satisfied", "joint", "topic", "cut", "facts", "at length", "KL", "CPU s", "gate")

HEAD = """# What burnish learns: results

Written by `python -m bench.learning.results > docs/results.md` from [the records](bench/results.jsonl).
[All columns](bench/learning.md). SmolLM2-135M on one core without a GPU.

Simulated users with hidden preferences talk to a running burnish through the official client, and rate or comment.
Then each version takes the same exam: 80 questions that were never rated (120 for brief-cold), 60 facts, and 12
requests for detail. Means over seeds ± 95 % (Student's t); the standard error of one seed is .05 at most.

| column | meaning |
|---|---|
| joint | satisfied and on topic: the honest figure, because nonsense can be short too |
| topic, cut | share of answers on topic, and cut at the token limit |
| facts | share of 60 facts that it knows |
| at length | share of answers over 300 characters to requests for detail |
| KL | nats per token to the base model |
| CPU s | CPU seconds of the trainer; other work ran on the machine except for 32 ratings and 16 comments |
| gate | verdict; except in the last table, a version goes live for the exam whatever it is |

`auto` learns from ratings, `auto_words` from ratings and comments; other arms name the objective or the feedback.

![satisfied and on topic, before and after](bench/overview.png)
"""


class Section(NamedTuple):
    """One table: its title, what it shows, and which groups and arms are in it."""

    title: str
    meaning: str
    groups: Sequence[str]
    arms: Sequence[str] = ()
    """Empty: all of them."""


STYLES = ("no-commas", "hedged", "simple-words", "example", "number", "second-person", "two-sentences")
CHANGED = ("flip10", "flip20", "flip30", "only_good", "only_bad", "turn")
SECTIONS = (
    Section(
        "Short answers, from ratings and from comments",
        "brief's program asks for one short sentence, brief-cold's for nothing. More than eight comments make more "
        "answers stay on topic, not shorter ones.",
        ("brief", "brief-cold"),
        ("auto", "auto_words"),
    ),
    Section(
        "Other preferences",
        "The small model rarely does what these users like, and learns less. The gate rejects most damage (*cut*), "
        "but not all: hedged and two-sentences went live.",
        STYLES,
    ),
    Section(
        "Mistaken, one-sided and changing ratings",
        "Some ratings are flipped, only good or only bad, or the preference turns into its opposite half-way (*turn*).",
        [f"{user}-{stress}" for user in ("brief", "brief-cold") for stress in CHANGED],
    ),
    Section(
        "Two users who want opposite things",
        "One wants long answers, the other short ones (*joint* is the second's). The gate judges by all ratings.",
        ("at-length+brief",),
    ),
    Section(
        "Three preferences in sequence, and learning in rounds",
        "Each version answers the questions of the next round (*joint* is the last user's). Later ones wear off "
        "earlier ones.",
        ("no-commas+second-person+brief-rounds", "brief-cold-rounds"),
    ),
    Section(
        "Objectives, on the same ratings of the same answers",
        "The objectives that `auto` chooses stay on topic and pass the gate. Published alternatives satisfy more "
        "often, but move too far.",
        ("brief", "brief-cold"),
    ),
)


def page(records: Iterable[Record]) -> str:
    groups = grouped(records)
    lines = HEAD.splitlines()
    for section in SECTIONS:
        lines += ["", f"## {section.title}", "", section.meaning, "", *_table(section, groups)]
    meaning = "Learning after every 16 answers; only the gate decides what goes live."
    return "\n".join([*lines, "", *settled_section(groups, (meaning, ""))]) + "\n"


def _table(section: Section, groups: Mapping[Group, Mapping[str, Seeds]]) -> list[str]:
    found: Rows = []
    named = {group.name: group for group in groups}
    for group in (named[name] for name in section.groups if name in named):
        columns = header(group)
        kept = [columns.index(column) for column in SHOWN]
        for row in rows(group, groups[group]):
            if row[0] in (NOTHING, *section.arms) or not section.arms:
                found.append([group.name, *(row[place] for place in kept)])
    return markdown(["user", *SHOWN], found)


if __name__ == "__main__":
    print(page(map(json.loads, RECORDS.read_text(encoding="utf-8").splitlines())), end="")
