"""Commands that still ran when their tool answered: a later call tells how they ended. Pure.

Codex and OpenClaw wait ten seconds for a command, then let the model ask again and again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from burnish.parts.signals.outcomes import CODEX_RUNNING, CommandEnd, outcomes

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

    def began(self, command: str, output: str) -> bool:
        """Remember a command if the result of its call says that it still runs; return whether it does."""
        if match := CODEX_RUNNING.match(output):
            self._running[match[1]] = RunningOn(command, output[match.end() :])
        elif match := OPENCLAW_RUNNING.search(output):
            self._running[match[1]] = RunningOn(command)
        return match is not None

    def edited(self) -> None:
        for command in self._running.values():
            command.files_changed = True

    def asked(self, tool: str, arguments: Any, output: str) -> tuple[RunningOn, CommandEnd] | None:
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
        elif match := CODEX_RUNNING.match(output):
            running.printed += output[match.end() :]
        elif (end := _ended(tool, output)) and end.code is not None:
            del self._running[session]
            return running, end._replace(output=running.printed + end.output)
        return None


def _ended(tool: str, output: str) -> CommandEnd:
    match = OPENCLAW_ENDS.search(output) if tool == "process" else None
    return CommandEnd(int(match[1]), output[: match.start()]) if match else outcomes(output)[0]
