"""Figures from the records: means over seeds with their intervals, as rows of tables."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from bench.learning.cell import settled_by_chance

Record = Mapping[str, Any]
Point = Mapping[str, Any]
Rows = list[list[str]]

# Student's t, two-sided 95 %, by degrees of freedom: the interval of a mean over so few seeds.
T_95 = {1: 12.7, 2: 4.30, 3: 3.18, 4: 2.78, 5: 2.57, 6: 2.45, 7: 2.36}
NOTHING = "–"


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean over seeds and its 95 % interval."""

    value: float
    half: float | None
    """Half of the interval; None for a single seed."""

    def shown(self, form: str) -> str:
        """Return it as text; ``form`` formats a number."""
        return format(self.value, form) + (f" ±{format(self.half, form)}" if self.half is not None else "")


def mean(values: Sequence[float]) -> Mean:
    """Return the mean of one figure a seed."""
    count = len(values)
    if count == 1:
        return Mean(values[0], None)
    return Mean(fmean(values), T_95.get(count - 1, 2.2) * stdev(values) / math.sqrt(count))


@dataclass(frozen=True, slots=True)
class Column:
    """A figure of a point."""

    name: str
    form: str
    of: Callable[[Point], float | None]
    interval: bool = False
    """Whether it is what a table is read for; the others are shown without."""

    def cell(self, points: Iterable[Point]) -> str:
        """Return the figure's mean over some seeds."""
        values = [value for point in points if (value := self.of(point)) is not None]
        if not values:
            return NOTHING
        return mean(values).shown(self.form) if self.interval else format(fmean(values), self.form)


COLUMNS = (
    Column("satisfied", ".2f", lambda p: p.get("satisfied"), interval=True),
    Column("joint", ".2f", lambda p: p.get("joint"), interval=True),
    Column("topic", ".2f", lambda p: p.get("on_topic")),
    Column("empty", ".2f", lambda p: p.get("near_empty")),
    Column("repeats", ".2f", lambda p: p.get("repetitive")),
    Column("cut", ".2f", lambda p: p.get("cut")),
    Column("chars", ".0f", lambda p: p.get("mean_characters")),
    Column("facts", ".2f", lambda p: p.get("general")),
    Column("at length", ".2f", lambda p: p.get("at_length")),
    Column("KL", ".2f", lambda p: p.get("checks", {}).get("kl")),
    Column("CPU s", ".0f", lambda p: p.get("metrics", {}).get("cpu_seconds")),
    Column("GB", ".1f", lambda p: p["metrics"]["peak_rss_bytes"] / 1e9 if "metrics" in p else None),
)


@dataclass(frozen=True, slots=True)
class Group:
    """Cells that differ in nothing but arm and seed, numbers of ratings apart: what belongs into one table."""

    users: tuple[str, ...]
    way: str
    stress: str

    @property
    def name(self) -> str:
        """Its title, and its plot's file name."""
        parts = [
            "+".join(self.users),
            *(each for each in (self.way, self.stress) if each not in ("anew", "none")),
        ]
        return "-".join(parts)


Seeds = list[Record]
"""Records of an arm: of several seeds and numbers of ratings."""


def grouped(records: Iterable[Record]) -> dict[Group, dict[str, Seeds]]:
    """Return the records of each arm by group; of an arm those with the most held-out questions."""
    found: dict[Group, dict[str, Seeds]] = {}
    for record in records:
        group = Group(tuple(record["users"]), record["way"], record["stress"])
        found.setdefault(group, {}).setdefault(record["arm"], []).append(record)
    return {
        group: {arm: _with_most_held_out(seeds) for arm, seeds in arms.items()}
        for group, arms in found.items()
    }


def _with_most_held_out(seeds: Seeds) -> Seeds:
    most = max(record["held_out"] for record in seeds)
    return [record for record in seeds if record["held_out"] == most]


def by_ratings(seeds: Seeds) -> dict[int, list[Point]]:
    """Return the points of an arm by the number of ratings, one a seed each."""
    found: dict[int, dict[int, Point]] = {}
    for record in seeds:
        for point in record["points"]:
            found.setdefault(point["ratings"], {})[record["seed"]] = point
    return {ratings: list(found[ratings].values()) for ratings in sorted(found)}


def header(group: Group) -> list[str]:
    """Return the columns of the table."""
    others = [f"for {name}" for name in group.users[:-1]]
    return ["arm", "ratings", "seeds", *(column.name for column in COLUMNS), *others, "gate"]


def rows(group: Group, arms: Mapping[str, Seeds]) -> Rows:
    """Return the base model's row, and for each arm one a number of ratings: means over the seeds."""
    columns = [*COLUMNS, *(_for_user(name) for name in group.users[:-1])]
    bare = untaught(arms)
    table = [[NOTHING, "0", str(len(bare)), *(column.cell(bare) for column in columns), NOTHING]]
    for arm, seeds in arms.items():
        for ratings, points in by_ratings(seeds).items():
            outcomes = [point["outcome"] for point in points]
            gate = ", ".join(f"{outcomes.count(each)} {each}" for each in dict.fromkeys(outcomes))
            cells = [column.cell(points) for column in columns]
            table.append([arm, str(ratings), str(len(points)), *cells, gate])
    return table


def untaught(arms: Mapping[str, Seeds]) -> list[Point]:
    """Return what the base model was examined by, once a seed."""
    return list({record["seed"]: record["before"] for seeds in arms.values() for record in seeds}.values())


def _for_user(name: str) -> Column:
    return Column(name, ".2f", lambda point: point.get("users", {}).get(name), interval=True)


SETTLED_TITLE = "Questions until three first answers in a row satisfy"
SETTLED_HEADER = ["user", "arm", "questions", "each seed", "had nothing been learnt"]


def settled_rows(groups: Mapping[Group, Mapping[str, Seeds]]) -> Rows:
    """Return how many questions the users asked until they were settled, in the groups that learnt online."""
    return [
        [group.name, arm, *_settled(seeds)]
        for group, arms in groups.items()
        if group.way == "online"
        for arm, seeds in arms.items()
    ]


def _settled(seeds: Seeds) -> list[str]:
    most = max(seeds[0]["counts"])
    asked = [record["settled"] for record in seeds]
    chance = [settled_by_chance(record["before"]["satisfied"], most) for record in seeds]
    return [
        mean([float(each or most) for each in asked]).shown(".0f"),
        ", ".join(str(each) if each else f">{most}" for each in asked),
        mean(chance).shown(".0f"),
    ]
