"""Checks of everything that is stored: the log's texts and the versions, each against its digest."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing

from burnish.adapters.errors import AdapterError
from burnish.adapters.registry import Registry
from burnish.cli.doctor_machine import Finding
from burnish.config.config import Config
from burnish.proxy.log import files


def log(config: Config) -> Finding:
    path = config.log_file
    if not path.is_file():
        return Finding("ok", "log", "empty")
    try:
        with closing(files.connect(path, read_only=True)) as database:
            report = database.execute("PRAGMA integrity_check(1)").fetchone()[0]
            damaged, compared = files.damaged_texts(database, all_of_them=True)
    except sqlite3.Error as error:
        report, damaged, compared = str(error), 0, 0
    if report != "ok":
        return Finding("fail", "log", f"{path} is damaged ({report}): put a backup in its place")
    if damaged:
        return Finding(
            "fail", "log", f"{damaged} of {compared} texts in {path} are damaged; a backup has them whole"
        )
    return Finding("ok", "log", f"sound, with {compared} texts as they were stored")


def versions(config: Config) -> Iterator[Finding]:
    registry = Registry(config.data_dir / "adapters")
    sound = damaged = 0
    try:
        for version in registry.versions():
            if version.state == "pruned":
                continue
            try:
                registry.verify(version.number)
                sound += 1
            except (AdapterError, OSError) as error:
                damaged += 1
                yield Finding("fail", f"v{version.number}", str(error))
    except AdapterError as error:
        yield Finding("fail", "versions", str(error))
        return
    yield Finding("fail" if damaged else "ok", "versions", f"{sound} sound, {damaged} damaged")
