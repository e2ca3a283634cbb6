"""
title: burnish: ratings
author: burnish
description: Sends each thumb to burnish at once, with its reason and comment; if it changes, so does the rating.
version: 1.0
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from string import punctuation
from typing import Any
from urllib.parse import quote

import httpx
from pydantic import BaseModel, Field

log = logging.getLogger(__name__)

WORDS = {"1": "good", "-1": "bad"}
LIMIT_S = 10.0
MAX_TAGS, MAX_TAG = 32, 256
"""What burnish takes."""
LATER = frozenset({401, 403, 408, 429})
"""Refusals that may end, e.g. once the key is right. Others wouldn't change if they were tried again."""


class Event:
    """Gets Open WebUI's events. After one about feedback, burnish is told how that feedback stands now.

    What couldn't be sent waits in a file, and is tried again at the next event of any kind.
    """

    class Valves(BaseModel):
        url: str = Field("http://127.0.0.1:8787", description="Where Open WebUI's server reaches burnish.")
        key: str = Field("", description="burnish's api_key, if it has one.")

    def __init__(self) -> None:
        self.valves = self.Valves()
        self._one_at_a_time = asyncio.Lock()

    async def event(self, event: dict[str, Any]) -> None:
        kind, subject = event["event"], (event.get("subject") or {}).get("id")
        if kind == "feedback.deleted_all":
            with _book() as book:
                book.execute("UPDATE ratings SET waits = 1")
        elif kind.startswith("feedback.") and subject:
            with _book() as book:
                book.execute(
                    "INSERT INTO ratings VALUES (?, NULL, 1) ON CONFLICT (feedback) DO UPDATE SET waits = 1",
                    (subject,),
                )
        async with self._one_at_a_time:
            await self._send_waiting()

    async def _send_waiting(self) -> None:
        with _book() as book:
            rows = book.execute("SELECT feedback, sent FROM ratings WHERE waits").fetchall()
        if not rows:
            return
        headers = {"x-burnish-key": self.valves.key} if self.valves.key else {}
        async with httpx.AsyncClient(
            base_url=self.valves.url, headers=headers, timeout=LIMIT_S, trust_env=False
        ) as burnish:
            for feedback, old_id in rows:
                try:
                    new_id = await _tell(burnish, feedback, old_id)
                except httpx.HTTPError as error:
                    log.warning("burnish has no rating %s yet; it is sent again later: %s", feedback, error)
                    return
                with _book() as book:
                    book.execute(
                        "UPDATE ratings SET sent = ?, waits = 0 WHERE feedback = ?", (new_id, feedback)
                    )


async def _tell(burnish: httpx.AsyncClient, feedback: str, old_id: str | None) -> str | None:
    """Make burnish's rating say what Open WebUI's feedback says; return its ID. ``old_id``: the one before."""
    from open_webui.models.feedbacks import Feedbacks
    from open_webui.models.users import Users

    record = await Feedbacks.get_feedback_by_id(feedback)
    new_id = None
    if record and str((record.data or {}).get("rating")) in WORDS:
        user = await Users.get_user_by_id(record.user_id)
        new_id = await _rate(burnish, record, user.email if user else record.user_id)
    if old_id and old_id != new_id:
        _refused(await burnish.delete(f"/v1/feedback/{old_id}"))
    return new_id


async def _rate(burnish: httpx.AsyncClient, record: Any, user: str) -> str | None:
    responses = _responses((record.meta or {}).get("message_id"))
    if not responses:
        log.info("feedback %s isn't about an answer that was streamed since burnish was connected", record.id)
        return None
    # Open WebUI asks several times for one message if the model calls tools: then the whole turn is meant.
    body = {"response_id": responses[-1], "scope": "turn" if len(responses) > 1 else "completion"}
    # The same form as in the header of the connection, so that both name one user.
    header = {"x-burnish-user": quote(user.strip(), safe=punctuation + " \t")}
    answer = await burnish.post("/v1/feedback", json=body | _statement(record.data), headers=header)
    if _refused(answer):
        log.info("feedback %s isn't rated in burnish: %s", record.id, answer.text[:300])
        return None
    return str(answer.json()["id"])


def _refused(answer: httpx.Response) -> bool:
    """Return whether burnish refused for good, e.g. because the answer isn't its own. Raises httpx.HTTPError."""
    if answer.is_client_error and answer.status_code not in LATER:
        return True
    answer.raise_for_status()
    return False


def _statement(content: dict[str, Any]) -> dict[str, Any]:
    """Return what a thumb says: good or bad, why, and the subjects that Open WebUI found in the chat."""
    reason = str(content.get("reason") or "").replace("_", " ").strip()
    texts = [text for text in (reason, str(content.get("comment") or "").strip()) if text and text != "other"]
    points = (content.get("details") or {}).get("rating")
    tags = [*([f"{points} of 10"] if points else []), *(content.get("tags") or [])]
    body: dict[str, Any] = {"rating": WORDS[str(content["rating"])]}
    if texts:
        body["comment"] = ": ".join(texts)
    if lines := [" ".join(str(tag).split())[:MAX_TAG] for tag in tags if str(tag).strip()]:
        body["tags"] = lines[:MAX_TAGS]
    return body


def _responses(message: str | None) -> list[str]:
    """Return the IDs of the answers in a message, as the filter "burnish: answers" noted them."""
    file = _folder("burnish_answers") / "answers.db"
    if not message or not file.exists():
        return []
    with closing(sqlite3.connect(file, timeout=5)) as db:
        rows = db.execute("SELECT response FROM answers WHERE message = ? ORDER BY rowid", (message,))
        return [response for (response,) in rows]


@contextmanager
def _book() -> Iterator[sqlite3.Connection]:
    """The record of what burnish knows, and of what waits."""
    with closing(sqlite3.connect(_folder("burnish_ratings") / "ratings.db", timeout=5)) as book, book:
        book.execute(
            "CREATE TABLE IF NOT EXISTS ratings (feedback TEXT PRIMARY KEY, sent TEXT, waits INTEGER)"
        )
        yield book


def _folder(function: str) -> Path:
    from open_webui.config import CACHE_DIR

    folder = Path(CACHE_DIR) / "functions" / function
    folder.mkdir(parents=True, exist_ok=True)
    return folder
