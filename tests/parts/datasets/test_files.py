"""A large file is read piece by piece, and says what it says when it is read whole."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from burnish.parts.datasets.files import WHOLE_BYTES, rows_of
from burnish.parts.datasets.importing import read_files
from burnish.parts.datasets.parsed import FileRow, Problem
from tests.parts.datasets.exports import langfuse

texts = st.text('ab"\\[]{},é\n ', max_size=6)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
rows = st.lists(st.dictionaries(texts, values, max_size=3) | values, min_size=2, max_size=5)


def read(path: Path, whole_bytes: int, block_bytes: int) -> tuple[list[FileRow], list[Problem]]:
    problems: list[Problem] = []
    found = [*rows_of(path, "", problems, whole_bytes=whole_bytes, block_bytes=block_bytes)]
    return found, problems


@given(rows=rows, indent=st.sampled_from([None, 1]), block=st.integers(1, 20), mark=st.booleans())
def test_an_array_in_pieces_is_the_whole_array(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Any], indent: int | None, block: int, mark: bool
) -> None:
    path = tmp_path_factory.getbasetemp() / "array.json"
    path.write_text(("\ufeff" if mark else "") + " " * mark + json.dumps(rows, indent=indent), "utf-8")
    pieces, problems = read(path, 0, block + 4)
    whole, whole_problems = read(path, WHOLE_BYTES, 0)
    assert pieces == whole
    assert [problem.place for problem in problems] == [problem.place for problem in whole_problems]


@given(rows=rows, block=st.integers(4, 20))
def test_lines_in_pieces_are_the_lines(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Any], block: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "lines.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n\n" for row in [{"first": 1}, *rows]))
    assert read(path, 0, block) == read(path, WHOLE_BYTES, 0)


@pytest.mark.parametrize("text", ['[{"a": 1}, {"b"', '[{"a": 1}, nothing]', '[{"a": [1, 2', '[{"a": "\\'])
def test_what_breaks_off_is_named_and_the_rest_is_read(tmp_path: Path, text: str) -> None:
    path = tmp_path / "array.json"
    path.write_text(text)
    found, (problem,) = read(path, 0, 8)
    assert [row.content for row in found] == ([{"a": 1}] if "}," in text else [])
    assert "isn't JSON" in problem.reason


@pytest.mark.parametrize("name", ["sft", "langfuse"])
def test_the_memory_for_a_large_file_does_not_grow_with_it(tmp_path: Path, name: str) -> None:
    filling = "x" * 400_000
    array = name == "langfuse"
    asked = [{"role": "user", "content": "Where is o1?"}, {"role": "assistant", "content": "North."}]
    objects = langfuse() if array else [{"messages": asked}]
    path = tmp_path / "large"
    with path.open("w") as file:
        for number in range(WHOLE_BYTES // len(filling) // len(objects) + 5):
            for row in objects:
                text = json.dumps(row | {"filling": filling})
                for identity in ("t1", "o1", "o2", "s1"):
                    text = text.replace(identity, f"{identity}-{number}")
                file.write(("," if file.tell() else "[") + text if array else f"{text}\n")
        file.write("]" if array else "")
    assert path.stat().st_size > WHOLE_BYTES
    tracemalloc.start()
    try:
        count = sum(1 for _ in read_files([path], name, {}).lines)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert count > 50
    assert peak < WHOLE_BYTES / 4
