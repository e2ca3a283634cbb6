"""Search: by words of the person and of the answer, in pages, beside other filters, and gone with what is erased."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from burnish.proxy.log import Keep, Log, listings, retention, search
from burnish.proxy.log.capture import parsed
from burnish.proxy.log.intake import Intake
from burnish.proxy.log.listings import Filters
from burnish.proxy.log.migrations import migrate
from burnish.proxy.log.search import CHARACTERS
from tests.proxy.log.exchanges import capture, exchange, opened, rate, system, until, user


async def found(log: Log, words: str, **more: object) -> list[str]:
    listed = await log.completions(50, more.pop("before", None), Filters(q=words, **more))  # type: ignore[arg-type]
    return [each.id for each in listed]


async def test_words_of_the_person_and_of_the_answer_are_found(log: Log):
    tea = capture(log, [system("Be brief."), user("How do I brew green tea?")], "Two minutes at 80 °C.")
    code = capture(log, [user("Fix src/parse_number.py")], "Done: `parse_number` returns None.")
    french = capture(log, [user("Où est le café?")], "À gauche.")
    mixed = capture(log, [user("你好 世界")], "Привет, МИР")
    for names, searches in (
        ([tea], ("green", "GREEN minutes", "tea brew")),
        ([code], ("parse_number", "src/parse", "pars")),
        ([french], ("cafe",)),
        ([mixed], ("мир", "世界")),
        # Whole words, unless the last is being typed; and the system prompt isn't what somebody wrote.
        ([], ("pa", "pars ", "green None", "brief")),
    ):
        for words in searches:
            assert await found(log, words) == names, words


@pytest.mark.parametrize(
    "words", ['"', '""', "*", "a AND", "NOT", "(", "words : x", "-", "^tea", "\0", "…", "'; --", "NEAR(a b)"]
)
async def test_no_words_are_taken_for_a_query_language(log: Log, words: str):
    capture(log, [user("Something else")])
    assert await found(log, words) == []


async def test_what_a_client_added_isnt_searched(log: Log):
    said = "<system-reminder>Remember the milk.</system-reminder>What time is it?"
    name = capture(log, [user(said)], {"role": "assistant", "content": None, "tool_calls": []})
    assert await found(log, "milk") == []
    assert await found(log, "time") == [name]


async def test_a_long_text_is_searched_at_its_beginning(log: Log):
    name = capture(log, [user("word " * CHARACTERS + "end")], "start " + "x" * CHARACTERS + " finish")
    assert await found(log, "word") == await found(log, "start") == [name]
    assert await found(log, "finish") == []


@pytest.mark.parametrize("rare", [1, 1000])
async def test_pages_and_other_filters_go_along(log: Log, monkeypatch: pytest.MonkeyPatch, rare: int):
    monkeypatch.setattr(search, "RARE", rare)
    monkeypatch.setattr(listings, "LOOKED_AT", 40)
    names = [capture(log, [user(f"number {n}")], agent="codex" if n % 2 else None) for n in range(450)]
    await rate(log, names[3], -1.0)
    await rate(log, names[404], -1.0)
    seen: list[str] = []
    while page := await found(log, "number", before=seen[-1] if seen else None):
        seen += page
    assert seen == names[::-1]
    assert await found(log, "number", rating="bad") == [names[404], names[3]]
    assert await found(log, "number", rating="bad", agent="codex") == [names[3]]
    assert await found(log, "number 404", rating="bad") == [names[404]]
    assert await found(log, "number", before="cmpl_0") == []


async def test_what_was_erased_or_pruned_isnt_found_and_leaves_no_word(log: Log, tmp_path: Path):
    capture(log, [user("xylophone")], "Zanzibar", caller="eve")
    kept = capture(log, [user("harpsichord")], "Zanzibar", caller="ann")
    assert len(await found(log, "zanzibar")) == 2
    await log.forget("eve")
    assert await found(log, "zanzibar") == [kept]
    assert await found(log, "xylophone") == []
    files = [*(tmp_path / "log").iterdir()]
    assert not [file.name for file in files if file.is_file() and b"xylophon" in file.read_bytes()]
    await log.prune(Keep(completions=0))
    assert await found(log, "zanzibar") == []
    with closing(sqlite3.connect(tmp_path / "log" / "log.sqlite3")) as connection:
        connection.execute("INSERT INTO search (search) VALUES ('integrity-check')")


WORDS = ("tea", "Tee", "teapot", "café", "cafe", "世界")
ACTIONS = st.one_of(
    st.tuples(st.just("store"), st.lists(st.sampled_from(WORDS), max_size=3)),
    st.tuples(st.just("index"), st.none()),
    st.tuples(st.just("erase"), st.integers(0, 5)),
)
"""The number of an erased answer is its place among those that are left, latest first."""


@given(st.lists(ACTIONS, max_size=20))
def test_a_search_finds_the_same_however_far_the_index_lags(actions: list[tuple[str, list[str] | int]]):
    stored: dict[str, list[str]] = {}
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        migrate(connection)
        intake = Intake(connection)
        for action, argument in actions:
            if isinstance(argument, list):
                made = parsed(exchange([user("same")], " ".join(argument)))
                intake.add([made])
                stored[made.completion.id] = argument
            elif action == "index":
                search.add(connection)
            elif names := sorted(stored, reverse=True)[argument : argument + 2]:
                retention.erase(connection, names)
                intake.forget()
                stored = {name: words for name, words in stored.items() if name not in names}
            for word in (*WORDS, "same"):
                listed = listings.completions(connection, filters=Filters(q=f"{word} "))
                assert [each.id for each in listed] == _holding(word, stored)


def _holding(word: str, stored: dict[str, list[str]]) -> list[str]:
    """Return the answers with a word, latest first; accents don't count."""

    def plain(text: str) -> str:
        return text.lower().replace("é", "e")

    word = plain(word)
    return [name for name in sorted(stored, reverse=True) if word in ("same", *map(plain, stored[name]))]


async def test_the_next_start_goes_on_with_the_index(tmp_path: Path):
    async with opened(tmp_path) as log:
        names = [capture(log, [user(f"tea {number}")]) for number in range(3)]
        assert await found(log, "tea") == names[::-1]
    with closing(sqlite3.connect(tmp_path / "log" / "log.sqlite3", isolation_level=None)) as connection:
        missing = "SELECT count(*) FROM completion WHERE n > (SELECT n FROM search_end)"
        assert connection.execute(missing).fetchone() == (3,)
        async with opened(tmp_path) as log:
            await until(lambda: connection.execute(missing).fetchone() == (0,))
            assert await found(log, "tea") == names[::-1]
            indexed = "SELECT count(*) FROM search WHERE search MATCH 'tea'"
            assert connection.execute(indexed).fetchone() == (3,)


async def test_many_completions_are_indexed_as_they_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(search, "STEP_ROWS", 10)
    async with opened(tmp_path) as log:
        names = [capture(log, [user(f"tea {number}")]) for number in range(95)]
        path = tmp_path / "log" / "log.sqlite3"
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            last = "SELECT n FROM search_end"
            await until(lambda: connection.execute(last).fetchone()[0] >= 90)
        assert len(await found(log, "tea", before=names[60])) == 50
        assert await found(log, "tea 94") == names[94:]
