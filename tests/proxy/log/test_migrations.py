"""A new database gets the schema; that of a newer burnish, or of long before the first release, is refused."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

import pytest

from burnish.proxy.http.errors import ConfigError
from burnish.proxy.log.migrations import MIGRATIONS, applied, migrate

FIRST, LATEST = MIGRATIONS[0].number, MIGRATIONS[-1].number


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    opened = sqlite3.connect(":memory:", isolation_level=None)
    yield opened
    opened.close()


def test_steps_are_recorded_once(connection: sqlite3.Connection):
    assert applied(connection) == 0
    migrate(connection)
    migrate(connection)
    assert applied(connection) == LATEST
    recorded = connection.execute("SELECT number, name FROM migration ORDER BY number").fetchall()
    assert recorded == [(step.number, step.name) for step in MIGRATIONS]


def test_a_log_of_before_the_release_gets_the_steps_that_it_lacks(connection: sqlite3.Connection):
    assert applied(connection) == 0
    connection.executescript(MIGRATIONS[0].statements)
    connection.executemany("INSERT INTO migration VALUES (?, 'a step', 0)", [(n + 1,) for n in range(FIRST)])
    connection.execute("INSERT INTO undo VALUES ('fb_1', 0)")
    migrate(connection)
    assert applied(connection) == LATEST
    assert connection.execute("SELECT feedback FROM undo").fetchall() == [("fb_1",)]


@pytest.mark.parametrize(
    ("number", "advice"),
    [(LATEST + 1, "update burnish"), (1, "start it once with this log"), (FIRST - 1, "--data-dir")],
)
def test_a_log_of_another_burnish_is_refused(connection: sqlite3.Connection, number: int, advice: str):
    assert applied(connection) == 0
    connection.execute("INSERT INTO migration VALUES (?, 'of another burnish', 0)", (number,))
    with pytest.raises(ConfigError, match=advice):
        migrate(connection)


def test_a_step_that_fails_leaves_nothing_of_itself(connection: sqlite3.Connection):
    connection.execute("CREATE TABLE undo (in_the_way)")
    with pytest.raises(sqlite3.OperationalError, match="already exists"):
        migrate(connection)
    tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    assert tables == [("undo",), ("migration",)]
    connection.execute("DROP TABLE undo")
    migrate(connection)
    assert applied(connection) == LATEST
