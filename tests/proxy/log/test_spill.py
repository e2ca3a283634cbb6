"""Captures in files: in order, whole or not at all, whatever the disk and the power do."""

from __future__ import annotations

import json
import resource
import stat
import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from burnish.proxy.log.spill import Spill, UnreadableCapture, packed
from tests.proxy.log.exchanges import Arrivals, capture, exchange, opened, user

Open = Callable[[], Spill]


@pytest.fixture
def open_spill(tmp_path: Path) -> Iterator[Open]:
    """Opens the same folder, as often as a test starts anew."""
    made: list[Spill] = []

    def opened() -> Spill:
        made.append(Spill(tmp_path / "spill"))
        return made[-1]

    yield opened
    for each in made:
        each.close()


@pytest.fixture
def spill(open_spill: Open) -> Spill:
    return open_spill()


def made(count: int):
    return [exchange([user(f"q{number}")], caller="zoë \udcff", session=None) for number in range(count)]


def appended(spill: Spill, count: int):
    there = made(count)
    for each in there:
        spill.append(each)
    return there


def read_all(spill: Spill, limit: int = 3):
    found = []
    while batch := spill.read(limit):
        found += batch
        spill.forget_read()
    return found


def test_what_goes_in_comes_out_in_order_and_leaves_nothing_behind(tmp_path: Path, spill: Spill):
    assert not spill.waiting and spill.read(5) == []
    first = appended(spill, 7)
    assert read_all(spill) == first
    assert not spill.waiting and list((tmp_path / "spill").iterdir()) == []
    second = appended(spill, 4)
    assert spill.waiting and read_all(spill) == second


def test_what_is_read_stays_until_it_is_forgotten(spill: Spill):
    there = appended(spill, 3)
    assert spill.read(2) == spill.read(2) == there[:2]
    assert spill.more
    spill.forget_read()
    assert spill.read(2) == there[2:]
    assert not spill.more


def test_a_later_process_goes_on_where_the_last_one_was(open_spill: Open):
    spill = open_spill()
    there = appended(spill, 3)
    spill.close()
    later = open_spill()
    there += appended(later, 1)
    assert read_all(later) == there


def test_what_was_taken_out_too_early_goes_before_all_others(open_spill: Open):
    spill = open_spill()
    later, earlier = appended(spill, 2), made(2)
    spill.put_back(earlier)
    assert read_all(open_spill()) == earlier + later


def test_what_is_added_while_it_is_read_comes_last(spill: Spill):
    first = appended(spill, 2)
    assert spill.read(5) == first
    second = appended(spill, 1)
    assert spill.more
    spill.forget_read()
    third = appended(spill, 1)
    assert read_all(spill) == second + third


@pytest.mark.parametrize("kept", [0, 1, 7, 8, 20])
def test_a_torn_record_ends_its_file(tmp_path: Path, open_spill: Open, kept: int):
    spill = open_spill()
    there = appended(spill, 3)
    spill.close()
    (file,) = (tmp_path / "spill").iterdir()
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) - len(packed(there[2])) + kept])
    later = open_spill()
    after = appended(later, 1)
    assert read_all(later) == there[:2] + after


def test_damage_inside_a_file_takes_only_what_is_behind_it(tmp_path: Path, open_spill: Open):
    spill = open_spill()
    there = appended(spill, 3)
    spill.close()
    (file,) = (tmp_path / "spill").iterdir()
    content = bytearray(file.read_bytes())
    content[len(packed(there[0])) + 30] ^= 0xFF
    file.write_bytes(content)
    assert read_all(open_spill()) == there[:1]


DAMAGES: dict[str, Callable[[Path], object]] = {
    "empty": Path.touch,
    "garbage": lambda file: file.write_bytes(bytes(range(256)) * 40),
    "a length of gigabytes": lambda file: file.write_bytes(b"\xff" * 4 + packed(made(1)[0])[4:]),
    "a length of nothing": lambda file: file.write_bytes(bytes(8) + packed(made(1)[0])),
    "text": lambda file: file.write_text("captures"),
    "a folder": Path.mkdir,
    "a link to nowhere": lambda file: file.symlink_to("nowhere"),
    "a link to itself": lambda file: file.symlink_to(file),
}


@pytest.mark.parametrize("suffix", [".captures", ".journal"])
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
async def test_a_damaged_file_harms_no_other(tmp_path: Path, damage: Callable[[Path], object], suffix: str):
    files = tmp_path / "log" / "log.sqlite3-spill"
    files.mkdir(parents=True)
    damage(files / f"100000000001{suffix}")
    kept = [exchange([user(str(number))]) for number in range(3)]
    (files / "100000000002.captures").write_bytes(b"".join(map(packed, kept)))
    async with opened(tmp_path, arrivals := Arrivals()) as log:
        after = capture(log, [user("after")])
        await arrivals.wait(4)
        assert [each.id for each in await log.completions()] == [after, *(each.id for each in kept[::-1])]


OTHER = {
    "id": "cmpl_1", "instructions": None, "created_at": 5.0, "surface": "chat", "model_asked": "m", "caller": "local",
    "upstream": "http://127.0.0.1:1", "model_served": "m", "outcome": "complete", "total_s": 0.2, "lengths": [2, 3, 4],
}  # fmt: skip


@pytest.mark.parametrize(
    "facts", [OTHER | {"of_the_future": 1}, {name: OTHER[name] for name in OTHER if name != "caller"}]
)
def test_a_capture_of_another_version_is_set_aside_with_its_file(
    tmp_path: Path, open_spill: Open, facts: dict[str, Any]
):
    encoded = json.dumps(facts).encode()
    content = len(encoded).to_bytes(4, "little") + encoded + b"{}onetwo!"
    record = struct.pack("<II", len(content), zlib.crc32(content)) + content
    folder = tmp_path / "spill"
    folder.mkdir()
    (folder / "100000000001.captures").write_bytes(record)
    spill = open_spill()
    with pytest.raises(UnreadableCapture):
        spill.read(5)
    aside = spill.skip()
    assert aside.read_bytes().endswith(b"{}onetwo!") and not spill.waiting


def test_a_full_disk_leaves_whole_records_and_takes_more_later(spill: Spill):
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


def test_files_are_their_owners(tmp_path: Path, spill: Spill):
    spill.append(made(1)[0])
    (file,) = (tmp_path / "spill").iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
