"""Token ids in the log: as they were given, small, and gone with their completion."""

from __future__ import annotations

import math
import sqlite3
from contextlib import closing
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as some

from burnish.proxy.log import Keep, Log
from burnish.proxy.log.migrations import migrate
from burnish.proxy.log.spill import Spill
from burnish.proxy.log.tokens import COLUMNS, row, tokens
from burnish.proxy.records import Tokens
from tests.proxy.log.exchanges import capture, exchange, opened, user

MADE = Tokens((1, 9690, 198, 4_000_000_000), (520, 9531), (-0.25, -3.5))
UNKNOWN = Tokens((1,), (2, 3), (math.nan, -1.0))
NONE = Tokens(missing="Ollama gives no token ids")
ids = some.lists(some.integers(0, 2**32 - 1)).map(tuple)


def rows(tmp_path: Path) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(tmp_path / "log" / "log.sqlite3")) as connection:
        return connection.execute(f"SELECT {COLUMNS} FROM token_capture").fetchall()


@given(ids, some.lists(some.tuples(some.integers(0, 2**32 - 1), some.floats(-100, 0, width=32))))
def test_numbers_come_back_as_they_were(prompt: tuple[int, ...], reply: list[tuple[int, float]]) -> None:
    stored = Tokens(prompt, tuple(name for name, _ in reply), tuple(logprob for _, logprob in reply))
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        migrate(connection)
        connection.execute(f"INSERT INTO token_capture ({COLUMNS}) VALUES (?, ?, ?, ?, ?)", row("c", stored))
        assert tokens(connection, ["c", "d"]) == {"c": stored}


async def test_tokens_are_read_by_completion_and_their_absence_says_why(log: Log) -> None:
    first = capture(log, [user("a")], tokens=MADE)
    without = capture(log, [user("b")], tokens=NONE)
    unasked = capture(log, [user("c")])
    unknown = capture(log, [user("d")], tokens=UNKNOWN)
    names = [first, without, unasked, unknown]
    found = await log.tokens(names)
    assert found.keys() == {first, without, unknown}
    assert found[first] == MADE
    assert math.isnan(found[unknown].logprobs[0]) and found[unknown].logprobs[1] == -1.0
    assert found[without] == NONE


async def test_tokens_go_with_their_completion(log: Log, tmp_path: Path) -> None:
    old, kept = (capture(log, [user(text)], tokens=MADE, caller="zoe") for text in "ab")
    assert await log.prune(Keep(completions=1)) == 1
    assert (await log.tokens([old, kept])).keys() == {kept}
    assert len(rows(tmp_path)) == 1
    assert await log.forget("zoe") == 1
    assert rows(tmp_path) == []


def test_a_file_of_waiting_captures_holds_them(tmp_path: Path) -> None:
    given = [exchange([user(str(each))], tokens=each) for each in (MADE, NONE, None)]
    spill = Spill(tmp_path / "spill")
    for each in [*given, exchange([user("d")], tokens=UNKNOWN)]:
        spill.append(each)
    *same, unknown = spill.read(9)
    spill.close()
    assert same == given
    tokens = unknown.wire.tokens
    assert tokens and math.isnan(tokens.logprobs[0]) and tokens.reply == UNKNOWN.reply


async def test_a_capture_that_comes_again_is_stored_once(tmp_path: Path) -> None:
    made = exchange([user("a")], tokens=MADE)
    async with opened(tmp_path) as log:
        log.capture(made)
        assert (await log.tokens([made.id]))[made.id] == MADE
    spill = Spill(tmp_path / "log" / "log.sqlite3-spill")
    spill.append(made)
    spill.close()
    async with opened(tmp_path) as log:
        assert (await log.tokens([made.id]))[made.id] == MADE
    assert len(rows(tmp_path)) == 1


async def test_an_id_that_is_none_keeps_the_completion(log: Log) -> None:
    """Whatever an engine says: the answer isn't lost."""
    made = capture(log, [user("a")], "fine", tokens=Tokens((2**40,), (1,), (-1.0,)))
    assert (await log.completion(made)).reply == {"role": "assistant", "content": "fine"}
    assert "can't be one" in ((await log.tokens([made]))[made].missing or "")


def test_an_id_takes_two_bytes_and_a_log_probability_four() -> None:
    """Of a vocabulary of 50,000; ids of real text take less."""
    count = 1000
    spread = tuple((number * 7919) % 49_152 for number in range(count))
    logprobs = tuple(-math.log1p(number) for number in range(count))
    _, prompt, reply, given, _ = row("c", Tokens(spread, spread, logprobs))
    assert prompt and reply and given
    assert len(prompt) == len(reply) <= 2.1 * count
    assert len(given) <= 4 * count
