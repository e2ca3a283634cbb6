"""A Telegram of our own: as much of its Bot API as OpenClaw asks of it, with one person and one bot."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import orjson

from tests.support.patience import within
from tests.support.scripted_model import on_a_thread
from tests.support.upstream import Received, reply

TOKEN = "4242:not-a-secret"
BOT = {"id": 4242, "is_bot": True, "first_name": "Claw", "username": "claw_bot"}
LIMIT_S = 120.0
"""The gateway takes its time to start on a busy machine."""
POLL_S = 5.0
"""How long a question for updates waits; Telegram lets the asker choose."""


@dataclass
class Telegram:
    """The running server: what people write, and what the bot has sent."""

    url: str = ""
    messages: dict[int, dict[str, Any]] = field(default_factory=dict)
    """What the bot said, by message id, as it stands after all edits."""
    updates: list[dict[str, Any]] = field(default_factory=list)
    changed: threading.Condition = field(default_factory=threading.Condition)
    first: int = field(default_factory=lambda: int(time.time()))
    """Number of the first update: what a bot has seen before would be no news to it."""
    _ids: Iterator[int] = field(default_factory=lambda: count(1))

    def write(self, person: int, text: str, chat: int | None = None) -> None:
        """A person writes to the bot, alone with it or in a group."""
        message = {
            "message_id": next(self._ids),
            "from": _person(person),
            "chat": _chat(person, chat),
            "date": int(time.time()),
            "text": text,
        }
        self._update(message=message)

    def react(self, person: int, message: int, emoji: str, chat: int | None = None) -> None:
        reaction = {
            "chat": _chat(person, chat),
            "message_id": message,
            "user": _person(person),
            "date": int(time.time()),
            "old_reaction": [],
            "new_reaction": [{"type": "emoji", "emoji": emoji}],
        }
        self._update(message_reaction=reaction)

    def press(self, person: int, message: int, label: str, chat: int | None = None) -> None:
        [data] = [
            button["callback_data"] for button in self.buttons(message) if button["text"].startswith(label)
        ]
        shown = self.messages[message] | {"chat": _chat(person, chat)}
        pressed = {"id": f"press-{next(self._ids)}", "from": _person(person), "message": shown, "data": data}
        self._update(callback_query=pressed | {"chat_instance": "1"})

    def buttons(self, message: int) -> list[dict[str, Any]]:
        rows = self.messages[message].get("reply_markup", {}).get("inline_keyboard", [])
        return [button for row in rows for button in row]

    def until_said(self, text: str) -> int:
        """Wait for a message of the bot that says something; return its id."""
        with self.changed:
            assert self.changed.wait_for(lambda: self.saying(text), within(LIMIT_S)), self.messages
        return self.saying(text)[-1]

    def saying(self, text: str) -> list[int]:
        """The ids of all messages of the bot that say something."""
        return [number for number, message in self.messages.items() if text in message.get("text", "")]

    def _update(self, **what: Any) -> None:
        with self.changed:
            self.updates.append({"update_id": self.first + len(self.updates), **what})
            self.changed.notify_all()

    def answer(self, method: str, asked: dict[str, Any]) -> Any:
        if method == "getMe":
            return BOT
        if method == "getUpdates":
            known = max(int(asked.get("offset") or 0) - self.first, 0)
            with self.changed:
                wait_s = min(float(asked.get("timeout") or 0), POLL_S)
                self.changed.wait_for(lambda: len(self.updates) > known, wait_s)
                return self.updates[known:]
        if method in ("sendMessage", "editMessageText"):
            return self._say(asked)
        if method == "editMessageReplyMarkup":
            with self.changed:
                message = self.messages[int(asked["message_id"])]
                message["reply_markup"] = _parsed(asked.get("reply_markup"))
                self.changed.notify_all()
            return message
        if method == "getWebhookInfo":
            return {"url": "", "has_custom_certificate": False, "pending_update_count": 0}
        return [] if method.startswith("getMyCommands") else True

    def _say(self, asked: dict[str, Any]) -> dict[str, Any]:
        with self.changed:
            number = int(asked.get("message_id") or next(self._ids))
            chat = int(asked["chat_id"])
            said = {
                "message_id": number,
                "from": BOT,
                "chat": _chat(chat, chat if chat < 0 else None),
                "date": int(time.time()),
                "text": asked.get("text", ""),
                "reply_markup": _parsed(asked.get("reply_markup")),
            }
            self.messages[number] = said
            self.changed.notify_all()
        return said


def _parsed(markup: Any) -> Any:
    return orjson.loads(markup) if isinstance(markup, str) else markup or {}


def _person(number: int) -> dict[str, Any]:
    return {"id": number, "is_bot": False, "first_name": f"Person {number}"}


def _chat(person: int, group: int | None) -> dict[str, Any]:
    if group is None:
        return {"id": person, "type": "private", "first_name": f"Person {person}"}
    return {"id": group, "type": "supergroup", "title": "Friends"}


@contextmanager
def telegram() -> Iterator[Telegram]:
    """Run it on a thread of its own."""
    state = Telegram()

    async def script(request: Received, writer: asyncio.StreamWriter) -> None:
        method = request.target.partition("?")[0].rpartition("/")[2]
        result = await asyncio.to_thread(state.answer, method, orjson.loads(request.body or b"{}"))
        await reply(orjson.dumps({"ok": True, "result": result}))(request, writer)

    with on_a_thread(script) as server:
        state.url = server.url
        yield state
