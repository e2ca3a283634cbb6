"""
title: burnish: answers
author: burnish
description: Remembers the ID of each answer, so that a thumb reaches burnish as a rating of that answer.
version: 1.0
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

MESSAGES_KEPT = 100_000
"""Older messages can't be rated any more. A message takes about 150 bytes."""


class Filter:
    """Sees each piece of a streamed answer. It changes nothing, and sends nothing anywhere."""

    def __init__(self) -> None:
        self._latest: dict[str, str] = {}
        """By message, of those that are being written."""

    def stream(self, event: dict[str, Any], __metadata__: dict[str, Any] | None = None) -> dict[str, Any]:
        response = event.get("id")
        message = (__metadata__ or {}).get("message_id")
        # Titles and other tasks have no answer to rate, but may name the message that they are about.
        task = (__metadata__ or {}).get("task")
        if response and message and not task and self._latest.get(message) != response:
            self._latest = {**dict(list(self._latest.items())[-100:]), message: response}
            _remember(str(message), str(response))
        return event


def _remember(message: str, response: str) -> None:
    with sqlite3.connect(_file(), timeout=5) as db:
        db.execute(
            "CREATE TABLE IF NOT EXISTS answers (message TEXT, response TEXT, UNIQUE (message, response))"
        )
        db.execute("INSERT OR IGNORE INTO answers VALUES (?, ?)", (message, response))
        db.execute(
            "DELETE FROM answers WHERE rowid <= (SELECT max(rowid) FROM answers) - ?", (MESSAGES_KEPT,)
        )
    db.close()


def _file() -> Path:
    from open_webui.config import CACHE_DIR

    folder = Path(CACHE_DIR) / "functions" / "burnish_answers"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / "answers.db"
