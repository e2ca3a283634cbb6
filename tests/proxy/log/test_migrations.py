"""Every older schema comes to the newest one with its data, and a newer one is refused."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator

import pytest

from burnish.proxy.http.errors import ConfigError
from burnish.proxy.log import feedback
from burnish.proxy.log.migrations import MIGRATIONS, applied, migrate


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    opened = sqlite3.connect(":memory:", isolation_level=None)
    yield opened
    opened.close()


def schema(connection: sqlite3.Connection) -> list[tuple[str, str]]:
    return connection.execute("SELECT name, sql FROM sqlite_master ORDER BY name").fetchall()


@pytest.mark.parametrize("old", range(len(MIGRATIONS) + 1))
def test_every_older_version_becomes_the_newest(connection: sqlite3.Connection, old: int):
    migrate(connection, old)
    assert applied(connection) == old
    if old:
        connection.execute("INSERT INTO content (digest, body) VALUES (x'00', 'kept')")
    migrate(connection)
    fresh = sqlite3.connect(":memory:", isolation_level=None)
    migrate(fresh)
    assert schema(connection) == schema(fresh)
    fresh.close()
    assert connection.execute("SELECT body FROM content").fetchall() == ([("kept",)] if old else [])


def test_what_was_logged_before_there_were_turns_is_linked(connection: sqlite3.Connection):
    """A question, a call, its result and an answer; then the next question, and one of somebody else's."""
    migrate(connection, 6)
    roles = ["user", "assistant", "tool", "assistant", "user", "assistant"]
    for number, role in enumerate(roles, start=1):
        body = json.dumps({"role": role, "content": str(number)}).encode()
        connection.execute("INSERT INTO content VALUES (?, ?, ?)", (number, b"c%d" % number, body))
        connection.execute(
            "INSERT INTO node VALUES (?, ?, ?, ?)", (number, b"n%d" % number, number - 1, number)
        )
    rows = [("a", 1, 2), ("b", 3, 4), ("c", 5, 6), ("d", None, None), ("z", 5, 6)]
    for name, node, reply in rows:
        connection.execute(
            """INSERT INTO completion (id, conversation_id, surface, created_at, outcome, model_asked, model_served,
                upstream, caller, retry, total_s, node, reply)
            VALUES (?, 'conv', 'chat', 0, 'complete', 'm', 'm', 'u', ?, 0, 0, ?, ?)""",
            (name, "bob" if name == "z" else "ann", node, reply),
        )
    migrate(connection)
    found = connection.execute("SELECT id, continues, begins_turn FROM completion ORDER BY id").fetchall()
    assert found == [("a", None, 1), ("b", "a", 0), ("c", "b", 1), ("d", None, 1), ("z", None, 1)]


def test_what_was_rated_before_there_were_keys_is_nobodys(connection: sqlite3.Connection):
    migrate(connection, [step.name for step in MIGRATIONS].index("keys of ratings"))
    connection.execute(
        """INSERT INTO feedback (id, created_at, completion_id, conversation_id, target, reward, scope, source, rater,
            weight, tags) VALUES ('fb_1', 0, 'cmpl_1', 'conv', 'rl', 1.0, 'turn', 'human', 'ann', 1.0, '[]')"""
    )
    migrate(connection)
    (found,) = feedback.select(connection, "1")
    assert (found.draft.voice, found.draft.reward, found.superseded_by) == (("ann", None), 1.0, None)


def test_answers_with_several_choices_are_known_afterwards(connection: sqlite3.Connection):
    migrate(connection, [step.name for step in MIGRATIONS].index("choices"))
    choices = [None, [{"index": 0, "logprobs": {}}], [{"index": 0}, {"index": 1}, {"index": 2}]]
    for number, kept in enumerate(choices, start=1):
        connection.execute(
            "INSERT INTO content VALUES (?, ?, ?)", (number, b"%d" % number, json.dumps(kept).encode())
        )
        connection.execute(
            """INSERT INTO completion (id, conversation_id, surface, created_at, outcome, model_asked, model_served,
                upstream, caller, retry, total_s, choices)
            VALUES (?, 'conv', 'chat', 0, 'complete', 'm', 'm', 'u', 'ann', 0, 0, ?)""",
            (str(number), number if kept else None),
        )
    migrate(connection)
    assert connection.execute("SELECT choice_count FROM completion ORDER BY id").fetchall() == [
        (1,),
        (1,),
        (3,),
    ]


def test_steps_are_recorded_once(connection: sqlite3.Connection):
    migrate(connection)
    migrate(connection)
    recorded = connection.execute("SELECT number, name FROM migration ORDER BY number").fetchall()
    assert recorded == [(number, step.name) for number, step in enumerate(MIGRATIONS, start=1)]


def test_a_log_of_a_newer_burnish_is_refused(connection: sqlite3.Connection):
    migrate(connection)
    connection.execute("INSERT INTO migration VALUES (?, 'from the future', 0)", (len(MIGRATIONS) + 1,))
    with pytest.raises(ConfigError, match="update burnish"):
        migrate(connection)


def test_a_step_that_fails_leaves_nothing_of_itself(connection: sqlite3.Connection):
    migrate(connection, 1)
    before = schema(connection)
    connection.execute("CREATE TABLE undo (in_the_way)")
    with pytest.raises(sqlite3.OperationalError, match="already exists"):
        migrate(connection)
    connection.execute("DROP TABLE undo")
    assert schema(connection) == before
    migrate(connection)
    assert applied(connection) == len(MIGRATIONS)


def test_keys_and_tokens_that_were_logged_before_are_found(connection: sqlite3.Connection):
    """A message with a token, an answer, a question that follows; and two exchanges without."""
    migrate(connection, [step.name for step in MIGRATIONS].index("keys and tokens in texts"))
    token = "gh" + "p_" + "abcdefghijklmnopqrstuvwxyz0123456789"
    for number, text in enumerate(["none", token, "an answer", "a question"], start=1):
        body = json.dumps({"role": "user", "content": text}).encode()
        connection.execute("INSERT INTO content VALUES (?, ?, ?)", (number, b"%d" % number, body))
    for node, parent, content in [(1, 0, 1), (2, 0, 2), (3, 2, 3), (4, 3, 4)]:
        connection.execute("INSERT INTO node VALUES (?, ?, ?, ?)", (node, b"%d" % node, parent, content))
    for name, node, reply in [("clean", 1, 3), ("asked", 2, 3), ("later", 4, 3), ("answered", 1, 2)]:
        connection.execute(
            """INSERT INTO completion (id, conversation_id, surface, created_at, outcome, model_asked, model_served,
                upstream, caller, retry, total_s, node, reply)
            VALUES (?, 'conv', 'chat', 0, 'complete', 'm', 'm', 'u', 'ann', 0, 0, ?, ?)""",
            (name, node, reply),
        )
    migrate(connection)
    found = connection.execute("SELECT id FROM completion WHERE holds_credential ORDER BY id").fetchall()
    assert found == [("answered",), ("asked",), ("later",)]
