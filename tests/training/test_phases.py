"""The file in which a run writes down how far it is."""

from __future__ import annotations

from pathlib import Path

from burnish.training.phases import Mark, Phases, read


def places(path: Path) -> list[tuple[str, int, int | None]]:
    return [(mark.phase, mark.done, mark.total) for mark in read(path)]


def test_phases_and_counters_are_read_back_in_order(tmp_path: Path) -> None:
    path = tmp_path / "phases.jsonl"
    phases = Phases(path)
    phases.begin("preparing")
    assert list(phases.over([[3, 4], [5]])) == [[3, 4], [5]]
    Phases(path).begin("training", 8, count=6)  # another process, from a checkpoint
    first = [("preparing", 0, None), ("preparing", 0, 3), ("preparing", 2, 3), ("preparing", 3, 3)]
    assert places(path) == [*first, ("preparing", 0, None), ("training", 6, 8)]
    phases.clear()
    assert read(path) == []


def test_a_thing_counts_once_it_is_done_and_nothing_needs_no_counter(tmp_path: Path) -> None:
    phases = Phases(tmp_path / "phases.jsonl")
    phases.begin("scoring")
    assert list(phases.each([])) == []
    each = phases.each("ab")
    next(each)
    assert places(tmp_path / "phases.jsonl") == [("scoring", 0, None), ("scoring", 0, 2)]
    next(each)
    assert places(tmp_path / "phases.jsonl")[-1] == ("scoring", 1, 2)


def test_a_file_that_cannot_be_written_stops_no_run(tmp_path: Path) -> None:
    phases = Phases(tmp_path / "gone" / "phases.jsonl")
    phases.begin("training", 8)
    phases.advance()
    phases.clear()
    assert read(tmp_path / "gone" / "phases.jsonl") == []


def test_damaged_lines_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "phases.jsonl"
    path.write_bytes(b'{"phase": "loading", "at": 1.5}\n{"pha\n[]\n\xff\n{"phase": "training", "at": 2, "to')
    assert read(path) == [Mark("loading", 1.5)]
