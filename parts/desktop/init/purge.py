"""Delete a data directory, but nothing in it that isn't burnish's."""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Sequence
from pathlib import Path

from burnish.parts.connect import connection
from burnish.parts.desktop.init.record import FILE
from burnish.parts.user_files import remove_empty
from burnish.proxy.http.errors import ConfigError

OWN_NAMES = (
    "burnish.*",
    "adapters",
    "jobs",
    "rewards",
    "engine",
    "lock",
    "server.json",
    "litellm.log*",
    "reward-model.log*",
    connection.FOLDER,
    FILE,
)


def purge(data_dir: Path, folders: Sequence[Path] = ()) -> list[Path]:
    """Delete what is burnish's, then the directories that are empty; return what is left. Raises ConfigError.

    ``folders``: directories that were created for the data directory.
    """
    try:
        _refuse_if_running(data_dir)
        for path in sorted({path for name in OWN_NAMES for path in data_dir.glob(name)}):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
        remove_empty([data_dir, *folders])
        return sorted(data_dir.iterdir()) if data_dir.is_dir() else []
    except OSError as error:
        raise ConfigError(f"{data_dir} couldn't be deleted: {error}") from error


def _refuse_if_running(data_dir: Path) -> None:
    lock = data_dir / "lock"
    if not lock.exists():
        return
    with lock.open("a", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ConfigError(f"burnish is running with {data_dir}: stop it, then delete its data") from error
