"""Gives feedback by what agents' tools found: follows the log a moment behind its writer, so no request waits."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from burnish.parts.signals import state as files
from burnish.parts.signals.reading import Reading, Signal, read
from burnish.parts.signals.state import SignalFinding
from burnish.proxy.http.errors import Conflict, NotFound, Unavailable
from burnish.proxy.log import Log
from burnish.proxy.log.followers import Above, Follower
from burnish.proxy.log.side_requests import is_side_request
from burnish.proxy.records import SIGNAL, Completion, Feedback, FeedbackDraft

logger = logging.getLogger(__name__)

WEIGHT = 0.3
"""Of a signal; a rating of a person weighs 1. As much as what a judge says."""
RATER = "signals"
ROWS = 50
"""Read at once; contexts of coding agents are long."""


class Signals:
    """The reader of one log."""

    def __init__(self, log: Log, data_dir: Path, *, enabled: bool) -> None:
        self._log = log
        self._file = data_dir / "signals.json"
        self._enabled = enabled
        self._follower: Follower | None = None
        self._following: asyncio.Task[None] | None = None
        self._state = files.SignalState()
        self.on_feedback: Callable[[Feedback], None] = lambda _: None
        """Replaced when the engine is found."""

    async def start(self) -> None:
        if self._enabled:
            self._state = await asyncio.to_thread(files.load, self._file)
            self._follower = Follower("answers give no signals", self._read_on)
            self._following = asyncio.get_running_loop().create_task(self._follower.run())

    async def stop(self) -> None:
        if self._following:
            self._following.cancel()
            with suppress(asyncio.CancelledError):
                await self._following

    def stored(self) -> None:
        """Called when completions were stored, from the log's thread."""
        if self._follower:
            self._follower.wake()

    async def forget(self, user: str) -> None:
        """Drop what is remembered of a caller. Raises Unavailable."""
        if not self._enabled:
            return
        self._state.erase(user)
        try:
            await asyncio.to_thread(files.save, self._file, self._state)
        except OSError as error:
            raise Unavailable(
                f"{self._file} can't be written, so it still names {user!r}: {error}"
            ) from error

    def status(self) -> dict[str, Any]:
        counts = self._state.model_dump(include={"upto", "given", "withheld", "latest"})
        return {"on": self._enabled, **counts}

    # ------------------------------------------------------------------------------------------------------------------

    async def _read_on(self) -> bool:
        """Read some of what is stored behind the last row that was read. Raises Unavailable, OSError."""
        last = await self._log.last_row()
        # Behind the end, if the log was replaced by an older copy.
        position = last if self._state.upto is None else min(self._state.upto, last)
        upto, completions = await self._log.behind(position, ROWS, full=True, within_turns=True)
        for completion in completions:
            if _has_results(completion):
                await self._read(completion)
        if upto != self._state.upto:
            await asyncio.to_thread(files.save, self._file, self._state.model_copy(update={"upto": upto}))
            self._state.upto = upto
        return upto != position

    async def _read(self, completion: Completion) -> None:
        """Read the results that a completion was told. Raises Unavailable."""
        request, cause = completion.asked, completion.continues
        if cause is None or request.sub_agent or is_side_request(completion):
            return
        branch = await self._log.branch(cause)
        session = f"{request.caller}/{request.session}" if request.session else None
        doubt = self._state.doubts.get(session or "")
        reading = await asyncio.to_thread(read, completion.messages, logged=len(branch), doubt=doubt)
        if session and reading.doubt:
            self._state.doubted(session, reading.doubt)
        for index, signal in enumerate(reading.signals):
            if target := _target(reading, signal, branch):
                key = (
                    f"{SIGNAL}{cause}/{index}"
                    if not signal.answers_back
                    else f"{SIGNAL}{signal.kind}/{target}"
                )
                await self._give(signal, target, key)

    async def _give(self, signal: Signal, target: str, key: str) -> None:
        """Store a signal as feedback, or say why not. Raises Unavailable."""
        finding = SignalFinding(completion_id=target, at=time.time(), good=signal.good, words=signal.words)
        if signal.good is None:
            self._state.found(finding)
            logger.info("signals: no good rating for %s: %s", target, signal.words)
            return
        draft = FeedbackDraft(
            completion_id=target,
            target="completion_id",
            reward=1.0 if signal.good else -1.0,
            scale="binary",
            scope="turn",
            source="environment",
            rater=RATER,
            weight=WEIGHT,
            tags=(SIGNAL + signal.kind, signal.words),
            idempotency_key=key,
        )
        try:
            addition = await self._log.add_feedback(draft)
        except (Conflict, NotFound):
            return  # it was given before, from another branch; or the answer was erased
        if addition.created:
            self._state.found(finding)
            self.on_feedback(addition.feedback)
            logger.info("signals: %s rated %s: %s", target, "good" if signal.good else "bad", signal.words)


def _target(reading: Reading, signal: Signal, branch: list[Above]) -> str | None:
    """Return the completion that a signal names; None if the log's turns aren't those of the context."""
    turns = reading.turns[::-1]
    if signal.answers_back >= min(len(turns), len(branch)):
        return None
    for index in range(signal.answers_back):
        if branch[index].begins_turn != (turns[index] != turns[index + 1]):
            return None
    return branch[signal.answers_back].id


def _has_results(completion: Completion) -> bool:
    """Whether results of tools stand behind the last answer; a client may add something after them."""
    for message in reversed(completion.messages):
        if (role := message.get("role")) in ("tool", "assistant"):
            return bool(role == "tool")
    return False
