"""Carry out a plan, all of it or nothing; take it back later, and the data directory too if that is wanted."""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from burnish.adapters.hosts.fetch import CACHED
from burnish.parts import user_files
from burnish.parts.connect import connection
from burnish.parts.connect.connection import FileOutcome
from burnish.parts.desktop.init.plan import FILE, OWN, SetupPlan, SetupRecord, file_of
from burnish.parts.user_files import remove_empty
from burnish.proxy.http.errors import BurnishError, ConfigError


class Background(Protocol):
    """The last step: burnish runs in the background, or no longer does. If it fails, it leaves things as they were."""

    def take(self) -> None: ...

    def take_back(self) -> None:
        """Called after ``take``, once the files are as they were."""
        ...


def carry_out(plan: SetupPlan, background: Background | None = None) -> list[FileOutcome]:
    """Make all changes, or none. Raises ConfigError, and what ``background`` raises."""
    with _taken_back_on_failure(background), user_files.all_or_nothing(plan.paths()):
        outcomes = _carried_out(plan)
        if background:
            background.take()
    return outcomes


@contextmanager
def _taken_back_on_failure(background: Background | None) -> Iterator[None]:
    try:
        yield
    except BaseException as error:  # Ctrl-C, too
        try:
            if background:
                background.take_back()
        except BurnishError as failure:
            raise ConfigError(
                f"{error or 'interrupted'}; and the service as it was doesn't run: {failure}"
            ) from error
        raise


def _carried_out(plan: SetupPlan) -> list[FileOutcome]:
    """Raises ConfigError."""
    outcomes: list[FileOutcome] = []
    # The record comes first: even after a crash in the middle, everything can be undone.
    _write(replace(plan.record, agents=(*plan.record.agents, *plan.dropped)), plan.data_dir)
    for part in plan.parts:
        record = connection.record_file(plan.data_dir, part.name)
        outcomes += connection.connect(part.changes, record, private=plan.private and part.name != OWN)
    for name in plan.dropped:
        outcomes += connection.disconnect(connection.record_file(plan.data_dir, name))
    if plan.dropped:
        still = [name for name in plan.dropped if connection.record_file(plan.data_dir, name).exists()]
        _write(replace(plan.record, agents=(*plan.record.agents, *still)), plan.data_dir)
    return outcomes


def _write(record: SetupRecord, data_dir: Path) -> None:
    try:
        record.write(data_dir)
    except OSError as error:
        raise ConfigError(f"can't write {file_of(data_dir)}: {error.strerror}") from error


def undo(data_dir: Path) -> list[FileOutcome]:
    """Take back what the record says; byte for byte in files that are unchanged since. Raises ConfigError.

    The data directory stays unless it is empty. Downloads go if their directory wasn't there before. A file that can't
    be undone keeps its record, for another try.
    """
    record = SetupRecord.read(data_dir)
    if record is None:
        return []
    names = (*reversed(record.agents), *record.replaced, OWN)
    changes = {name: connection.recorded(connection.record_file(data_dir, name)) for name in names}
    outcomes = [
        outcome for name in names for outcome in connection.disconnect(connection.record_file(data_dir, name))
    ]
    for name, text in record.replaced.items():
        # Without a record, the user has disconnected it since.
        if changes[name] and not connection.record_file(data_dir, name).exists():
            _connect_again(connection.record_file(data_dir, name), text)
    remove_empty(
        {Path(folder) for files_of in changes.values() for change in files_of for folder in change.folders}
    )
    if all(outcome.what != "left" for outcome in outcomes):
        file_of(data_dir).unlink(missing_ok=True)
        remove_empty([data_dir / connection.FOLDER, *map(Path, record.folders)])
        outcomes += _without_cache([*map(Path, record.cache)])
    return outcomes


def _without_cache(folders: list[Path]) -> list[FileOutcome]:
    """Delete the downloads in the first of the directories, and the directories that are empty then."""
    if not (folders and folders[0].is_dir()):
        return []
    for name in CACHED:
        shutil.rmtree(folders[0] / name, ignore_errors=True)
    remove_empty(folders)
    return [FileOutcome(folders[0], "removed")]


def _connect_again(record: Path, text: str) -> None:
    """Put back a connection that the user had made by hand. Raises ConfigError."""
    try:
        user_files.write(record, text)
        for change in connection.recorded(record):
            file = user_files.read(Path(change.path))
            if (file[0] if file else None) == change.before:
                user_files.write(Path(change.path), change.after, change.mode_made)
    except (OSError, ValueError) as error:
        raise ConfigError(f"the earlier connection in {record} couldn't be put back: {error}") from error


OWN_NAMES = (
    "burnish.*", "adapters", "jobs", "rewards", "engine", "lock", "server.json", "litellm.log*", "reward-model.log*",
    connection.FOLDER, FILE,
)  # fmt: skip


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
