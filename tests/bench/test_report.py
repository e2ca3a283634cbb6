"""What the bench says of its records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench.learning import figures, report
from bench.learning.figures import Group, grouped
from bench.learning.rates import Rate


def record(seed: int, joint: float, counts: tuple[int, ...] = (32,), **more: Any) -> dict[str, Any]:
    shares = {"satisfied": 0.3, "joint": joint, "near_empty": 0.0, "users": {"second-person": 0.1 * seed}}
    return {
        "key": f"k{seed}",
        "users": ["brief"],
        "way": "anew",
        "stress": "none",
        "arm": "auto",
        "seed": seed,
        "counts": counts,
        "held_out": 40,
        "widely": False,
        "before": shares,
        "points": [{"ratings": count, "outcome": "live", **shares} for count in counts],
    } | more


def cell(rows: figures.Rows, columns: list[str], row: int, column: str) -> str:
    return rows[row][columns.index(column)]


def test_a_mean_comes_with_its_interval() -> None:
    assert figures.mean([0.5]).shown(".2f") == "0.50"
    # Standard deviation .1, three seeds: 4.30 * .1 / sqrt(3).
    assert figures.mean([0.5, 0.6, 0.7]).shown(".2f") == "0.60 ±0.25"


def test_seeds_stand_in_one_row_a_number_of_ratings() -> None:
    ((group, arms),) = grouped([record(0, 0.1, (16,)), record(0, 0.5), record(1, 0.7)]).items()
    columns, rows = figures.header(group), figures.rows(group, arms)
    assert [row[:3] for row in rows] == [["–", "0", "2"], ["auto", "16", "1"], ["auto", "32", "2"]]
    assert cell(rows, columns, 1, "joint") == "0.10"
    assert cell(rows, columns, 2, "joint") == "0.60 ±1.27"
    assert cell(rows, columns, 2, "gate") == "2 live"
    assert cell(rows, columns, 2, "KL") == "–"


def test_only_exams_of_one_length_are_compared() -> None:
    ((group, arms),) = grouped([record(0, 0.1), record(0, 0.5, held_out=80)]).items()
    (_, taught) = figures.rows(group, arms)
    assert cell([taught], figures.header(group), 0, "joint") == "0.50"


def test_arms_share_a_table_and_the_bare_model() -> None:
    ((group, arms),) = grouped([record(0, 0.5), record(0, 0.5, arm="sft")]).items()
    rows = figures.rows(group, arms)
    assert [row[:2] for row in rows] == [["–", "0"], ["auto", "32"], ["sft", "32"]]
    assert cell(rows, figures.header(group), 0, "joint") == "0.50"


def test_of_several_users_each_has_a_column() -> None:
    users = ["second-person", "brief"]
    ((group, arms),) = grouped([record(1, 0.5, users=users, way="rounds")]).items()
    assert group == Group(("second-person", "brief"), "rounds", "none")
    assert group.name == "second-person+brief-rounds"
    assert cell(figures.rows(group, arms), figures.header(group), 1, "for second-person") == "0.10"


def test_questions_until_settled_are_told_beside_what_chance_does() -> None:
    groups = grouped(
        [
            record(0, 0.5, (16, 32), way="online", settled=20),
            record(1, 0.5, (16, 32), way="online", settled=None),
            record(2, 0.5),
        ]
    )
    ((user, arm, mean, each, chance),) = figures.settled_rows(groups)
    assert (user, arm, mean, each) == ("brief-online", "auto", "26 ±76", "20, >32")
    assert 20 < float(chance.split()[0]) < 32


def test_what_missed_its_limit_is_named() -> None:
    assert all(check.passed for check in report.checks([record(0, 0.9)]))
    (joint, empty) = report.checks([record(0, 0.1)])
    assert (joint.passed, empty.passed) == (False, True)
    assert "brief after 32 ratings: 0.10 satisfied and on topic" in joint.what
    (_, _, long) = report.checks([record(0, 0.9, widely=True)])
    assert (long.passed, long.what[:38]) == (False, "brief after 32 ratings: 0.00 at length")


def test_a_run_that_was_not_examined_misses_every_limit() -> None:
    untrained = record(0, 0.9) | {"points": [{"ratings": 32, "outcome": "failed"}]}
    assert not any(check.passed for check in report.checks([untrained]))


def test_the_report_is_written_with_its_plots_and_its_command(tmp_path: Path) -> None:
    records = [record(0, 0.5, (16, 32)), record(1, 0.7, (16, 32)), record(0, 0.5, way="online", settled=3)]
    report.write(records, tmp_path, "python -m bench.learning")
    page = (tmp_path / "learning.md").read_text()
    assert "`python -m bench.learning`" in page
    assert "| auto | 32 | 2 | 0.30 ±0.00 | 0.60 ±1.27 |" in page
    assert "| brief-online | auto | 3 | 3 |" in page
    plots = sorted(tmp_path.glob("*.png"))
    assert [path.name for path in plots] == ["brief.png", "overview.png"]
    for path in plots:
        assert f"]({path.name})" in page
        assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("records", "plots", "said"),
    [
        ([record(0, 0.5), record(0, 0.6, arm="sft", users=["number"])], ["overview.png"], "| sft | 32 |"),
        ([record(0, 0.5, way="online", settled=3)], [], "| brief-online | auto | 3 |"),
        ([record(0, 0.9, points=[{"ratings": 32, "outcome": "not trained"}])], None, "1 not trained"),
    ],
    ids=["no curve", "nothing to draw", "no figures"],
)
def test_what_cannot_be_drawn_is_left_out(
    tmp_path: Path, records: list[dict[str, Any]], plots: list[str] | None, said: str
) -> None:
    report.write(records, tmp_path, "python -m bench.learning")
    assert said in (tmp_path / "learning.md").read_text()
    assert plots is None or [path.name for path in tmp_path.glob("*.png")] == plots


def test_base_rates_are_written(tmp_path: Path) -> None:
    report.write_rates(
        [Rate("brief", "a short answer", "nothing", 0.345, 0.3)], tmp_path, "python -m bench.learning"
    )
    assert "| brief | a short answer | nothing | 0.34 | 0.30 |" in (tmp_path / "rates.md").read_text()


@pytest.mark.parametrize("records", [[record(0, 0.5)], [record(0, 0.5, way="online", settled=3)]])
def test_the_terminal_gets_a_table(records: list[dict[str, Any]]) -> None:
    (table,) = report.tables(records)
    assert table.row_count
