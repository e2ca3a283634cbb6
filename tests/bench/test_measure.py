"""A cell against a real burnish: who asks, what is rated, and that an exam leaves no trace."""

from __future__ import annotations

import asyncio
import itertools
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from bench.learning.cell import Cell
from bench.learning.measure import measure
from tests.support.upstream import Received, Script, by_request, completion, events, reply, stream, upstream

Counts = tuple[int, int, int, int]
BRIEF = ("brief",)
CELLS = {
    "two users": Cell("auto", ("at-length", "brief"), 0, (4,), stress="only_bad", held_out=5),
    "pairs": Cell("dpo", BRIEF, 0, (2, 4), held_out=5, widely=False),
    "grades": Cell("auto_grades", BRIEF, 0, (4,), held_out=5, widely=False),
    "rounds": Cell("auto_words", BRIEF, 0, (2, 4), "rounds", held_out=5, widely=False),
    "online": Cell("auto_words", BRIEF, 0, (3, 6), "online", held_out=5, widely=False),
}


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The answers of the base model, which the cells share."""
    return tmp_path_factory.mktemp("kept")


@pytest.mark.parametrize(
    ("name", "trained", "expected"),
    [
        ("two users", [4], ("unknown", (4, 2, 0, 0))),
        ("pairs", [2, 4], ("unknown", (8, 0, 0, 2))),
        ("grades", [4], ("unknown", (4, 4, 0, 0))),
        ("rounds", [2, 4], (None, (4, 4, 2, 0))),
        ("online", [3], (5, (6, 6, 2, 0))),
    ],
)
async def test_users_ask_and_rate_through_the_proxy(
    tmp_path: Path, kept: Path, name: str, trained: list[int], expected: tuple[int | str | None, Counts]
) -> None:
    cell = CELLS[name]
    async with upstream(engine_that(talkative_twice)) as engine:
        settings = {"BURNISH_UPSTREAM": engine.url, "BURNISH_ENGINE": "none", "BURNISH_MODEL": "mock"}
        record = await asyncio.to_thread(
            measure, cell, kept, tmp_path / "scratch", settings, lambda doing: None
        )
    assert json.loads(json.dumps(record))["key"] == cell.key
    # The scripted engine takes no versions; burnish says so, and the cell goes on.
    assert [point["ratings"] for point in record["points"]] == trained
    assert {point["outcome"] for point in record["points"]} == {"not trained"}
    assert record["before"]["satisfied"] == 0.0
    assert ("mean_characters" in record["points"][-1]) is (cell.way != "online")
    assert (record.get("settled", "unknown"), log(tmp_path / "scratch" / "cell")) == expected


def talkative_twice(asked: dict[str, Any]) -> str:
    """Answer short, but at length in exams and to the first two of a cell's questions, as their dice show."""
    return "Short." if asked["seed"] >= 1002 else "Long. " * 40


def engine_that(says: Callable[[dict[str, Any]], str]) -> Script:
    """Say it to the questions of users, whose answers are streamed."""
    numbers = itertools.count(1)

    def answer(request: Received) -> Script:
        if request.method != "POST":
            return reply(b"{}", status="404 Not Found")
        asked, response_id = request.json(), f"chatcmpl-{next(numbers)}"
        if asked.get("stream"):
            return stream(events(says(asked), response_id=response_id))
        return reply(completion("Paris", response_id=response_id))

    return by_request(answer)


def log(data: Path) -> Counts:
    """Return how many questions were asked, answers rated, comments made, and pairs compared."""
    with closing(sqlite3.connect(data / "burnish.db")) as db:
        (asked,) = db.execute("SELECT count(*) FROM completion").fetchone()
        counted = db.execute(
            "SELECT count(reward), count(comment), count(preferred_over) FROM feedback"
        ).fetchone()
    return (asked, *counted)
