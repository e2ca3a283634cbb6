"""The file with the principles, as people write it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from burnish.parts.judging.principles import EXAMPLE, FILE, MAX_CHARACTERS, MOST, parse, read
from burnish.proxy.http.errors import Conflict, Unprocessable

WRITTEN = """# How we answer

These are ours:

- Be brief.
* Say what you don't know,
  and don't guess.
1. Be kind.
2) Be kind.

- Be brief.
Not a principle.
"""


def test_the_items_of_lists_are_the_principles() -> None:
    found = parse(WRITTEN, "it")
    assert found.texts == ("Be brief.", "Say what you don't know, and don't guess.", "Be kind.")
    assert found.numbered().splitlines()[0] == "1. Be brief."


def test_other_principles_have_another_digest() -> None:
    assert parse("- a", "it").digest == parse("# More\n\n* a\n", "it").digest != parse("- b", "it").digest


def test_a_missing_file_is_named_with_an_example_to_paste(tmp_path: Path) -> None:
    with pytest.raises(Conflict) as raised:
        read(tmp_path)
    assert str(tmp_path / FILE) in raised.value.message
    assert EXAMPLE in raised.value.message
    (tmp_path / FILE).write_text(EXAMPLE)
    assert len(read(tmp_path).texts) == 3


@pytest.mark.parametrize("text", ["", "# Only a heading\n", "Be brief.\n", "-\n", "---\n"])
def test_a_file_without_principles_is_refused_with_an_example(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_text(text)
    with pytest.raises(Unprocessable, match="there is no principle in") as raised:
        read(tmp_path)
    assert EXAMPLE in raised.value.message


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"- caf\xe9")
    with pytest.raises(Unprocessable, match="isn't a UTF-8 text"):
        read(tmp_path)


def test_too_many_and_too_long_ones_are_refused_with_the_limit() -> None:
    with pytest.raises(Unprocessable, match=f"{MOST + 1} principles .* {MOST} at most"):
        parse("\n".join(f"- principle {n}" for n in range(MOST + 1)), "it")
    with pytest.raises(Unprocessable, match=f"longer than {MAX_CHARACTERS} characters"):
        parse(f"- {'x' * (MAX_CHARACTERS + 1)}", "it")


@given(
    st.lists(st.text(alphabet="abc xyz", min_size=1, max_size=30).filter(str.strip), min_size=1, max_size=8)
)
def test_whatever_is_written_as_a_list_is_read_as_one(texts: list[str]) -> None:
    words = [" ".join(each.split()) for each in texts]
    assert parse("\n".join(f"- {each}" for each in words), "it").texts == tuple(dict.fromkeys(words))
