"""Several files change together, or stay byte for byte as they were."""

from __future__ import annotations

from pathlib import Path

import pytest

from burnish.parts import user_files
from burnish.proxy.http.errors import ConfigError


@pytest.mark.parametrize("error", [OSError("the disk is full"), KeyboardInterrupt()])
def test_a_failure_puts_back_bytes_modes_links_and_folders(tmp_path: Path, error: BaseException) -> None:
    target, link, new = tmp_path / "dotfiles", tmp_path / "settings", tmp_path / "a" / "b" / "new"
    target.write_bytes(b"\xff\r\n")
    target.chmod(0o640)
    link.symlink_to(target)
    with pytest.raises(type(error)), user_files.all_or_nothing([link, new]):
        user_files.write(link, "changed", 0o600)
        user_files.write(new, "made")
        raise error
    assert link.is_symlink()
    assert target.read_bytes() == b"\xff\r\n"
    assert target.stat().st_mode & 0o777 == 0o640
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dotfiles", "settings"]


def test_a_file_that_cannot_be_put_back_is_named(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "settings"
    user_files.write(path, "mine")
    with (
        pytest.raises(ConfigError, match=rf"no service; and couldn't be put back: {path}"),
        user_files.all_or_nothing([path]),
    ):
        path.unlink()
        path.mkdir()
        raise ConfigError("no service")


def test_a_file_that_cannot_be_read_stops_it_before_the_first_change(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nothing was changed"), user_files.all_or_nothing([tmp_path]):
        raise AssertionError("it began")
