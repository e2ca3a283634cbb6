"""What the log tells of versions: their teachers, and how many requests they answered each day."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path

from burnish.proxy import ids
from burnish.proxy.log import Log
from burnish.proxy.log.migrations import migrate
from burnish.proxy.log.runs import answers_by_day
from tests.proxy.log.exchanges import capture, rate, user

NOON = datetime(2026, 11, 25, 12).astimezone()


def answered_at(moment: datetime) -> str:
    return ids.first_completion_id_at(moment.timestamp())


async def test_answers_are_counted_by_day_and_version(log: Log) -> None:
    for days_ago, version in ((0, 2), (1, 2), (1, 1), (9, 1)):
        moment = NOON - timedelta(days=days_ago, minutes=version)
        capture(log, [user("Hi")], id=answered_at(moment), adapter_version=version)
    midnight = NOON.replace(hour=0)
    for moment in (midnight, midnight - timedelta(milliseconds=1)):
        capture(log, [user("Hi")], id=answered_at(moment), adapter_version=0)
    found = await log.answers_by_day([0, 1, 2, 3], 3, NOON)
    days = {"2026-11-23": {}, "2026-11-24": {0: 1, 1: 1, 2: 1}, "2026-11-25": {0: 1, 2: 1}}
    assert [(day.date, day.answers) for day in found] == [*days.items()]


def test_counting_reads_an_index_and_no_completion(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "log.db", isolation_level=None)) as connection:
        migrate(connection)
        asked: list[str] = []
        connection.set_trace_callback(asked.append)
        answers_by_day(connection, [0, 1], 2, NOON)
        connection.set_trace_callback(None)
        plan = connection.execute(f"EXPLAIN QUERY PLAN {asked[0]}").fetchall()
    steps = [detail for *_, detail in plan if "completion" in detail]
    assert steps
    assert all("USING COVERING INDEX completion_version" in detail for detail in steps), steps


async def test_teachers_are_those_who_gave_the_feedback_and_what_they_said(log: Log) -> None:
    one, two = (capture(log, [user("Hi")], f"Answer {number}") for number in range(2))
    given = [
        await rate(log, one, 1.0, rater="ann"),
        await rate(log, two, -1.0, rater="ann", comment="too long"),
        await rate(log, two, None, rater="bob", correction="Shorter."),
        await rate(log, one, None, rater="bob", preferred_over=two),
    ]
    await rate(log, one, 1.0, rater="carl")
    found = await log.teachers([each.id for each in given] + ["fb_erased"])
    assert [tuple(each) for each in found] == [("ann", 1, 1, 1, 0, 0), ("bob", 0, 0, 0, 1, 1)]
    assert await log.teachers([]) == []
