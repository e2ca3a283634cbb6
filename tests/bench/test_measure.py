"""A cell against a real burnish: who asks, what is rated, and that an exam leaves no trace."""

from __future__ import annotations

import asyncio
import itertools
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from burnish.bench.cell import Cell
from burnish.bench.measure import measure
from tests.support.upstream import Received, completion, events, reply, stream, upstream


@pytest.mark.parametrize(
    ("way", "counts", "trained"),
    [("anew", (2, 4), [2, 4]), ("rounds", (2, 4), [2, 4]), ("online", (3, 6), [3])],
)
async def test_users_ask_and_rate_through_the_proxy(
    tmp_path: Path, way: str, counts: tuple[int, ...], trained: list[int]
) -> None:
    numbers = itertools.count(1)

    async def script(request: Received, writer: asyncio.StreamWriter) -> None:
        if request.method != "POST":
            await reply(b"{}", status="404 Not Found")(request, writer)
            return
        asked, number = request.json(), next(numbers)
        # The dice of a cell's questions begin at 1000, an exam's at 0: the first two questions displease.
        text = "Short." if asked.get("seed", 0) >= 1002 or not asked.get("stream") else "Long. " * 40
        if asked.get("stream"):
            await stream(events(text, response_id=f"chatcmpl-{number}"))(request, writer)
        else:
            await reply(completion(text, response_id=f"chatcmpl-{number}"))(request, writer)

    async with upstream(script) as engine:
        settings = {"BURNISH_UPSTREAM": engine.url, "BURNISH_ENGINE": "none", "BURNISH_MODEL": "mock"}
        cell = Cell("auto_words", ("brief",), 0, counts, way, held_out=5)  # type: ignore[arg-type]
        said: list[str] = []
        record = await asyncio.to_thread(
            measure, cell, tmp_path / "kept", tmp_path / "scratch", settings, said.append
        )
    assert json.loads(json.dumps(record))["key"] == cell.key
    # The scripted engine takes no versions; burnish says so, and the cell goes on.
    assert [point["ratings"] for point in record["points"]] == trained
    assert {point["outcome"] for point in record["points"]} == {"not trained"}
    assert record["before"]["satisfied"] == 0.0
    assert ("mean_characters" in record["points"][-1]) is (way != "online")
    assert record.get("settled", "nothing") == {"anew": "nothing", "rounds": None, "online": 5}[way]
    asked = {"anew": 4, "rounds": 4, "online": 6}[way]
    assert ratings(tmp_path / "scratch" / "cell") == (asked, asked, 2)


def ratings(data: Path) -> tuple[int, int, int]:
    """Return how many questions were asked, how many answers were rated, and how many comments were made."""
    with closing(sqlite3.connect(data / "burnish.db")) as log:
        (asked,) = log.execute("SELECT count(*) FROM completion").fetchone()
        rated, comments = log.execute("SELECT count(reward), count(comment) FROM feedback").fetchone()
    return asked, rated, comments
