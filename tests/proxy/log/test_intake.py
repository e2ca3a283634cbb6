"""A batch is stored as its completions would be one by one, and no fault of one harms another."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from burnish.proxy.log import Log
from burnish.proxy.log.capture import Parsed, parsed
from burnish.proxy.log.intake import Intake
from burnish.proxy.log.migrations import migrate
from burnish.proxy.records import Completion
from tests.proxy.log.exchanges import assistant, capture, exchange, system, user


def database() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    migrate(connection)
    return connection


def content_of(connection: sqlite3.Connection) -> list[tuple[Any, ...]]:
    """All that is stored, conversations by the number of their first completion."""
    rows = connection.execute(
        """SELECT completion.id, min(n) OVER (PARTITION BY conversation_id), node.digest, prompt.body, reply.body,
            settings.body, definitions.body, caller, session, reply_key
        FROM completion LEFT JOIN node ON node.id = completion.node
        LEFT JOIN content AS prompt ON prompt.id = completion.prompt
        LEFT JOIN content AS reply ON reply.id = completion.reply
        LEFT JOIN content AS settings ON settings.id = completion.settings
        LEFT JOIN content AS definitions ON definitions.id = completion.definitions
        ORDER BY n"""
    ).fetchall()
    tree = connection.execute(
        """SELECT node.digest, parent.digest, body FROM node
        LEFT JOIN node AS parent ON parent.id = node.parent JOIN content ON content.id = node.content ORDER BY 1"""
    ).fetchall()
    return rows + tree + connection.execute("SELECT digest, body FROM content ORDER BY 1").fetchall()


def stored(captured: list[Parsed], size: int, *, forgetful: bool = False) -> list[tuple[Any, ...]]:
    """Store in batches of a size and return all that is stored."""
    with closing(database()) as connection:
        intake = Intake(connection)
        for start in range(0, len(captured), size):
            intake.add(captured[start : start + size])
            if forgetful:
                intake.forget()  # as after a fault: only slower
        return content_of(connection)


def talks(seed: int) -> list[Completion]:
    """Conversations of several callers that go on, split, begin the same and are tried again."""
    chance = random.Random(seed)
    histories: list[list[dict[str, Any]]] = [[system("be kind")], [], [user("same")]]
    made: list[Completion] = []
    for number in range(60):
        history = list(chance.choice(histories))
        history.append(user(chance.choice(["why?", "how?", f"what is {number}?"])))
        reply = chance.choice(["OK.", f"answer {number}, which is long enough to be found by itself"])
        facts: dict[str, Any] = {"caller": chance.choice(["ann", "bob"]), "retry": chance.randrange(4) // 3}
        facts["session"] = chance.choice([None, "s1", "s2"])
        facts["params"] = chance.choice([{}, {"temperature": 0.5}, {"tools": ["x" * 300]}])
        made.append(exchange(history, reply, **facts))
        histories.append([*history, assistant(reply)])
    return made


@pytest.mark.parametrize("seed", range(5))
def test_batches_of_any_size_store_the_same(seed: int):
    captured = [parsed(each) for each in talks(seed)]
    assert stored(captured, 1) == stored(captured, 7, forgetful=True) == stored(captured, 60)


def test_tools_are_stored_once_whatever_a_client_notes_of_each_request():
    notes = [{"client_metadata": {"turn": f"{number}" * 300}, "tools": ["x" * 300]} for number in range(3)]
    made = [parsed(exchange([user("hi")], params=params)) for params in notes]
    assert len({captured.definitions for captured in made}) == 1
    assert len({captured.settings for captured in made}) == 3


def test_a_long_history_that_is_new_is_stored_once(tmp_path: Path):
    history = [each for turn in range(300) for each in (user(f"q{turn}"), assistant(f"a{turn}"))]
    made = [parsed(exchange([*history, user(f"end {number}")])) for number in range(3)]
    connection = database()
    Intake(connection).add(made)
    assert connection.execute("SELECT count(*) FROM node").fetchone() == (603,)
    later = Intake(connection)  # which remembers nothing
    later.add([parsed(exchange([*history, user("end 0"), assistant("Hello!"), user("and now?")]))])
    assert connection.execute("SELECT count(*) FROM node").fetchone() == (605,)
    assert connection.execute("SELECT count(DISTINCT conversation_id) FROM completion").fetchone()[0] < 4
    connection.close()


def test_what_is_stored_already_stays_as_it_is():
    captured = [parsed(exchange([user(str(number))])) for number in range(3)]
    connection = database()
    Intake(connection).add(captured[:2])
    before = connection.execute("SELECT id, conversation_id FROM completion").fetchall()
    Intake(connection).add(captured, again=True)
    after = connection.execute("SELECT id, conversation_id FROM completion ORDER BY n").fetchall()
    assert after[:2] == before and len(after) == 3
    connection.close()


async def test_a_row_that_sqlite_cannot_hold_harms_no_other_of_its_batch(log: Log):
    before = capture(log, [user("before")])
    bad = capture(log, [user("x")], caller="\udcff")
    large = capture(log, [user("x")], retry=2**70)
    after = capture(log, [user("after")])
    found = {each.id for each in await log.completions()}
    assert {before, large, after} <= found
    assert bad not in found
    assert f"1 requests can't be stored ({bad}: " in (log.healthy() or "")
    again = capture(log, [user("before"), assistant("Hello!"), user("more")])
    conversations = {each.id: each.conversation_id for each in await log.completions()}
    assert conversations[again] == conversations[before], "what is remembered is what is stored"
