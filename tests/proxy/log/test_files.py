"""A damaged log is recognised at the start, named, and left as it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from burnish.proxy.errors import ConfigError
from burnish.proxy.log import Log
from burnish.proxy.log.files import CHECKED_BYTES
from tests.proxy.log.exchanges import capture, opened, user

PAGE_BYTES = 4096


async def damaged(tmp_path: Path) -> Path:
    async with opened(tmp_path) as log:
        for number in range(200):
            capture(log, [user(f"{number} " + "x" * 1000)])
    path = tmp_path / "log" / "log.sqlite3"
    content = bytearray(path.read_bytes())
    pages = [at for at in range(0, len(content), PAGE_BYTES) if b"x" * 1000 in content[at : at + PAGE_BYTES]]
    for at in pages[5:25]:  # of messages, which nothing needs at the start
        content[at : at + PAGE_BYTES] = bytes(PAGE_BYTES)
    path.write_bytes(content)
    return path


async def test_damage_is_found_at_the_start_and_the_file_is_kept(tmp_path: Path):
    path = await damaged(tmp_path)
    before = path.read_bytes()
    with pytest.raises(ConfigError, match="burnish backup") as caught:
        Log.open(path)
    assert "Move it away" in str(caught.value) and str(path) in str(caught.value)
    assert path.read_bytes() == before


async def test_of_a_large_file_only_the_feedback_is_checked(tmp_path: Path):
    path = await damaged(tmp_path)
    with path.open("r+b") as file:
        file.truncate(CHECKED_BYTES + 4096)  # SQLite goes by the size in its header
    log = Log.open(path)
    log.close()
