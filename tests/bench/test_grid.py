"""The grid of the learning bench: what it measures, what it keeps, what it says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from burnish.bench import grid, report
from burnish.bench.cell import Cell
from burnish.bench.preferences import PREFERENCES
from burnish.bench.questions import PROMPTS
from burnish.bench.stress import stressed


def test_every_cell_of_the_grid_has_a_name_of_its_own() -> None:
    cells = [*grid.full(), *grid.QUICK]
    assert len({cell.key for cell in cells}) == len(cells)
    assert any(cell.counts == grid.COUNTS for cell in cells)
    assert all(max(cell.counts) + cell.held_out <= len(PROMPTS) for cell in cells)


def test_a_line_that_was_cut_off_is_measured_anew(tmp_path: Path) -> None:
    whole = json.dumps({"key": "a", "points": []})
    (tmp_path / grid.RESULTS).write_text(f'{whole}\n{{"key": "b", "poi')
    assert list(grid.records(tmp_path)) == ["a"]
    assert grid.records(tmp_path / "elsewhere") == {}


def test_what_is_there_is_not_measured_again(tmp_path: Path) -> None:
    cell = Cell("auto", "brief", 0, (32,))
    (tmp_path / grid.RESULTS).write_text(json.dumps({"key": cell.key}) + "\n")
    assert grid.work_through([cell], tmp_path, pytest.fail) == {cell.key: {"key": cell.key}}


def test_users_rate_otherwise_as_the_stress_says() -> None:
    pleased = [True, False] * 50
    assert stressed("none", pleased, 0) == pleased
    assert stressed("only_good", pleased, 0) == [True, None] * 50
    assert stressed("only_bad", pleased, 0) == [None, False] * 50
    assert stressed("turn", pleased, 0) == [False, True] * 25 + [True, False] * 25
    flipped = sum(
        said != is_pleased for said, is_pleased in zip(stressed("flip20", pleased, 0), pleased, strict=True)
    )
    assert 8 <= flipped <= 32


@pytest.mark.parametrize(
    ("name", "text", "finished", "pleases"),
    [
        ("brief", "Rain is water that falls.", True, True),
        ("brief", "Rain is water that falls", False, False),
        ("brief", "Rain." * 30, True, False),
        ("brief-cold", "", True, False),
        ("second-person", "You can drink it.", True, True),
        ("second-person", "Young people drink it.", True, False),
    ],
)
def test_what_pleases_whom(name: str, text: str, finished: bool, pleases: bool) -> None:
    assert PREFERENCES[name].satisfied(text, finished) is pleases


def record(seed: int, joint: float, counts: tuple[int, ...] = (32,)) -> dict[str, Any]:
    shares = {"satisfied": joint, "joint": joint, "near_empty": 0.0}
    return {
        "key": f"k{seed}",
        "preference": "brief",
        "stress": "none",
        "arm": "auto",
        "seed": seed,
        "counts": counts,
        "held_out": 40,
        "before": shares,
        "points": [{"ratings": count, "outcome": "live", **shares} for count in counts],
    }


def test_a_mean_comes_with_its_interval() -> None:
    assert str(report.mean([0.5])) == "0.50"
    # Standard deviation .1, three seeds: 4.30 * .1 / sqrt(3).
    assert str(report.mean([0.5, 0.6, 0.7])) == "0.60 ±0.25"


def test_seeds_stand_in_one_row_and_other_counts_in_none() -> None:
    groups = report.grouped([record(0, 0.1, (16, 32)), record(0, 0.5), record(1, 0.7)])
    (members,) = groups.values()
    (bare, row) = report.rows(members)
    assert (bare[0], row[0], row[1], row[-1]) == ("0", "32", "0.60 ±1.27", "2 live")


def test_what_missed_its_limit_is_named() -> None:
    assert report.missed([record(0, 0.9)]) == []
    (said,) = report.missed([record(0, 0.1)])
    assert "k0: 0.10 satisfied and on topic" in said


def test_the_report_is_written_with_its_plot(tmp_path: Path) -> None:
    report.write([record(0, 0.5), record(1, 0.7)], tmp_path)
    assert "| 32 | 0.60 ±1.27 |" in (tmp_path / "learning.md").read_text()
    assert (tmp_path / "brief.png").read_bytes().startswith(b"\x89PNG")
