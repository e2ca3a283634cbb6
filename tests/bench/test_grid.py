"""The grid of the learning bench: which cells there are, and what is kept of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.learning import grid
from bench.learning.arms import ARMS
from bench.learning.cell import Cell
from bench.learning.preferences import PREFERENCES
from bench.learning.questions import PROMPTS

CELLS = [*grid.full(), *grid.large(), *grid.QUICK]


def test_every_cell_of_the_grid_has_a_name_of_its_own_and_can_be_asked() -> None:
    assert len({cell.key for cell in CELLS}) == len(CELLS)
    assert all(cell.counts[-1] + cell.held_out <= len(PROMPTS) for cell in CELLS)
    assert all(list(cell.counts) == sorted(set(cell.counts)) for cell in CELLS)


def test_every_arm_and_every_preference_is_measured() -> None:
    assert {cell.arm for cell in CELLS} == set(ARMS)
    assert {name for cell in CELLS for name in cell.users} == set(PREFERENCES)


def test_users_in_one_cell_have_the_same_program() -> None:
    for cell in CELLS:
        programs = {(PREFERENCES[name].system, PREFERENCES[name].max_tokens) for name in cell.users}
        assert len(programs) == 1, cell.key


def test_a_line_that_was_cut_off_is_measured_anew(tmp_path: Path) -> None:
    whole = json.dumps({"key": "a", "points": []})
    (tmp_path / grid.RESULTS).write_text(f'{whole}\n{{"key": "b", "poi')
    assert list(grid.records(tmp_path)) == ["a"]
    assert grid.records(tmp_path / "elsewhere") == {}


def test_what_is_there_is_not_measured_again(tmp_path: Path) -> None:
    cell = Cell("auto", ("brief",), 0, (32,))
    (tmp_path / grid.RESULTS).write_text(json.dumps({"key": cell.key}) + "\n")
    assert grid.work_through([cell], tmp_path, {}, pytest.fail) == {cell.key: {"key": cell.key}}
