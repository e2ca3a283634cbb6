"""Captures in files: in order, whole or not at all, whatever the disk and the power do."""

from __future__ import annotations

import resource
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from burnish.proxy.log.spill import Spill, Unreadable, packed
from burnish.proxy.records import Exchange
from tests.proxy.log.exchanges import exchange, user


@pytest.fixture
def open_spill(tmp_path: Path) -> Iterator[Callable[[], Spill]]:
    """Opens the same folder, as often as a test starts anew."""
    made: list[Spill] = []

    def opened() -> Spill:
        made.append(Spill(tmp_path / "spill"))
        return made[-1]

    yield opened
    for each in made:
        each.close()


def made(count: int):
    return [exchange([user(f"q{number}")], caller="zoë \udcff", session=None) for number in range(count)]


def read_all(spill: Spill, limit: int = 3):
    found = []
    while batch := spill.read(limit):
        found += batch
        spill.forget_read()
    return found


def test_what_goes_in_comes_out_in_order_and_leaves_nothing_behind(
    tmp_path: Path, open_spill: Callable[[], Spill]
):
    spill = open_spill()
    assert not spill.waiting and spill.read(5) == []
    first, second = made(7), made(4)
    for each in first:
        spill.append(each)
    assert read_all(spill) == first
    assert not spill.waiting and list((tmp_path / "spill").iterdir()) == []
    for each in second:
        spill.append(each)
    assert spill.waiting and read_all(spill) == second


def test_what_is_read_stays_until_it_is_forgotten(tmp_path: Path, open_spill: Callable[[], Spill]):
    spill = open_spill()
    there = made(3)
    for each in there:
        spill.append(each)
    assert spill.read(2) == spill.read(2) == there[:2]
    assert spill.more
    spill.forget_read()
    assert spill.read(2) == there[2:]
    assert not spill.more


def test_a_later_process_goes_on_where_the_last_one_was(tmp_path: Path, open_spill: Callable[[], Spill]):
    there = made(4)
    spill = open_spill()
    for each in there[:3]:
        spill.append(each)
    spill.close()
    later = open_spill()
    later.append(there[3])
    assert read_all(later) == there


def test_what_was_taken_out_too_early_goes_before_all_others(tmp_path: Path, open_spill: Callable[[], Spill]):
    spill = open_spill()
    there = made(4)
    spill.append(there[2])
    spill.append(there[3])
    spill.put_back(there[:2])
    assert read_all(open_spill()) == there


def test_what_is_added_while_it_is_read_comes_last(tmp_path: Path, open_spill: Callable[[], Spill]):
    spill = open_spill()
    there = made(4)
    spill.append(there[0])
    spill.append(there[1])
    assert spill.read(5) == there[:2]
    spill.append(there[2])
    assert spill.more
    spill.forget_read()
    spill.append(there[3])
    assert read_all(spill) == there[2:]


@pytest.mark.parametrize("kept", [0, 1, 7, 8, 20])
def test_a_torn_record_ends_its_file(tmp_path: Path, open_spill: Callable[[], Spill], kept: int):
    spill = open_spill()
    there = made(3)
    for each in there:
        spill.append(each)
    spill.close()
    (file,) = (tmp_path / "spill").iterdir()
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) - len(packed(there[2])) + kept])
    later = open_spill()
    after = made(1)
    later.append(after[0])
    assert read_all(later) == there[:2] + after


def test_damage_inside_a_file_takes_only_what_is_behind_it(tmp_path: Path, open_spill: Callable[[], Spill]):
    spill = open_spill()
    there = made(3)
    for each in there:
        spill.append(each)
    spill.close()
    (file,) = (tmp_path / "spill").iterdir()
    content = bytearray(file.read_bytes())
    content[len(packed(there[0])) + 30] ^= 0xFF
    file.write_bytes(content)
    assert read_all(open_spill()) == there[:1]


def test_a_capture_of_an_earlier_version_is_read(
    open_spill: Callable[[], Spill], monkeypatch: pytest.MonkeyPatch
):
    known = {
        name: kind for name, kind in Exchange.__annotations__.items() if name not in Exchange._field_defaults
    }
    earlier = NamedTuple("earlier", list(known.items()))
    spill = open_spill()
    there = made(1)
    monkeypatch.setattr("burnish.proxy.log.spill.Exchange", earlier)
    spill.append(earlier(*there[0][: len(known)]))
    monkeypatch.undo()
    assert read_all(spill) == there


def test_a_capture_of_another_version_is_set_aside_with_its_file(
    open_spill: Callable[[], Spill], monkeypatch: pytest.MonkeyPatch
):
    later = NamedTuple("later", [*Exchange.__annotations__.items(), ("of_the_future", int)])
    spill = open_spill()
    there = made(1)
    spill.append(there[0])
    monkeypatch.setattr("burnish.proxy.log.spill.Exchange", later)
    spill.append(later(*there[0], of_the_future=1))
    monkeypatch.undo()
    assert spill.read(5) == there
    spill.forget_read()
    with pytest.raises(Unreadable):
        spill.read(5)
    aside = spill.skip()
    assert aside.exists() and not spill.waiting


def test_a_full_disk_leaves_whole_records_and_takes_more_later(
    tmp_path: Path, open_spill: Callable[[], Spill]
):
    spill = open_spill()
    there = made(3)
    spill.append(there[0])
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(packed(there[0])) + 100, unlimited[1]))
    try:
        with pytest.raises(OSError, match="large"):
            spill.append(there[1])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
    assert spill.read(5) == there[:1]
    spill.append(there[1])
    spill.append(there[2])
    assert spill.read(5) == there


def test_files_are_their_owners(tmp_path: Path, open_spill: Callable[[], Spill]):
    spill = open_spill()
    spill.append(made(1)[0])
    (file,) = (tmp_path / "spill").iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
