"""Commands that still ran when their tool answered: a later call tells how they ended. Pure.

Codex and OpenClaw wait ten seconds for a command, then let the model ask again and again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from burnish.parts.signals.outcomes import CODEX_RUNNING, Outcome, outcomes

OPENCLAW_RUNNING = re.compile(r"Command still running \(session ([^,\s]+), pid ")
OPENCLAW_ENDS = re.compile(r"\n\nProcess exited with code (-?\d+)\.\s*\Z")
SESSIONS = ("session_id", "sessionId")
READ_ONLY = frozenset({"poll", "log", "list"})
"""What OpenClaw's ``process`` does without touching the command."""


@dataclass
class RunningOn:
    """One command."""

    command: str
    printed: str = ""
    """What earlier calls showed of its output."""
    files_changed: bool = False
    """Whether files were edited while it ran."""


class Commands:
    """Those of one conversation that haven't ended yet, by their session."""

    def __init__(self) -> None:
        self._running: dict[str, RunningOn] = {}

    def began(self, command: str, result: str) -> bool:
        """Remember a command if the result of its call says that it still runs; return whether it does."""
        if found := CODEX_RUNNING.match(result):
            self._running[found[1]] = RunningOn(command, result[found.end() :])
        elif found := OPENCLAW_RUNNING.search(result):
            self._running[found[1]] = RunningOn(command)
        return found is not None

    def edited(self) -> None:
        for each in self._running.values():
            each.files_changed = True

    def asked(self, tool: str, arguments: Any, result: str) -> tuple[RunningOn, Outcome] | None:
        """Return the command that a call asked about and how it ended; None while it runs or if unknown.

        ``tool``: its name in small letters and without underscores.
        """
        if tool not in ("writestdin", "process") or not isinstance(arguments, Mapping):
            return None
        session = next((str(arguments[name]) for name in SESSIONS if name in arguments), "")
        if (running := self._running.get(session)) is None:
            return None
        if arguments.get("chars") or arguments.get("action", "poll") not in READ_ONLY:
            del self._running[session]  # typed text may look like counts
        elif found := CODEX_RUNNING.match(result):
            running.printed += result[found.end() :]
        elif (end := _ended(tool, result)) and end.code is not None:
            del self._running[session]
            return running, end._replace(output=running.printed + end.output)
        return None


def _ended(tool: str, result: str) -> Outcome:
    found = OPENCLAW_ENDS.search(result) if tool == "process" else None
    return Outcome(int(found[1]), result[: found.start()]) if found else outcomes(result)[0]
