"""Reads how a command ended from the result that an agent's tool gives to the model, or a later call's. Pure.

Each agent words it in its own way, as ``tests/parts/signals`` has it from the real programs. Some never say the exit
code (opencode), some only if it isn't 0 (Claude Code, OpenClaw). Nothing is made of what isn't said.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson


class CommandEnd(NamedTuple):
    code: int | None
    """Its exit code; None: not said, or it still runs."""
    output: str


CODEX = re.compile(
    r"\A(?:Chunk ID: [^\n]*\n)?(?:Wall time: [^\n]*\n)?(?:Process exited with code|Exit code:) (-?\d+)\n"
    r"(?:(?:Wall time|Original token count|Total output lines): [^\n]*\n)*Output:\n"
)
CODEX_RUNNING = re.compile(
    r"\A(?:Chunk ID: [^\n]*\n)?Wall time: [^\n]*\nProcess running with session ID (\d+)\n"
    r"(?:(?:Original token count|Total output lines): [^\n]*\n)*Output:\n"
)
CLAUDE_CODE = re.compile(r"\AExit code (\d+)(?:\n|\Z)")
QWEN_CODE = ("Command: ", "Output: ")
"""How its results begin, and those of Gemini CLI, which it was made from."""
QWEN_CODE_ENDS = re.compile(
    r"\nExit Code: (-?\d+|\(none\))(?:\n(?:Signal|Process Group PGID|Background PIDs): [^\n]*)*\Z"
)
OPENCLAW = re.compile(r"^\(?Command exited with code (\d+)\)?\Z", re.MULTILINE)
CLINE = re.compile(r"\A\[Command exited with code (\d+)\]\n?")
ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


LONGEST, HEAD = 100_000, 2_000
"""Characters of a result that are read: the beginning, and the end, where runners count."""


def outcomes(output: str) -> list[CommandEnd]:
    """Return the end of each command of a tool's call: one, save for tools that run several."""
    if len(output) > LONGEST:
        output = f"{output[:HEAD]}\n{output[HEAD - LONGEST :]}"
    if output.startswith(("[", "{")) and (ends := _in_json(output)):
        return ends
    return [_outcome(ANSI.sub("", output))]


def _outcome(output: str) -> CommandEnd:
    if CODEX_RUNNING.match(output):
        return CommandEnd(None, "")
    if match := CODEX.match(output):
        return CommandEnd(int(match[1]), output[match.end() :])
    if match := CLAUDE_CODE.match(output):
        return CommandEnd(int(match[1]), output[match.end() :])
    if output.startswith(QWEN_CODE) and (end := _of_qwen_code(output)):
        return end
    if match := CLINE.match(output):
        return CommandEnd(int(match[1]), output[match.end() :])
    if match := OPENCLAW.search(output.rstrip()):
        return CommandEnd(int(match[1]), output[: match.start()].rstrip())
    return CommandEnd(None, output)


def _of_qwen_code(output: str) -> CommandEnd | None:
    at = output.rfind("\nExit Code: ")
    match = QWEN_CODE_ENDS.match(output, at) if at > 0 else None
    begin = 0 if output.startswith("Output: ") else output.find("\nOutput: ") + 1
    if match is None or not output.startswith("Output: ", begin):
        return None
    error = output.rfind("\n", 0, at)
    end = error if output.startswith("\nError: ", error) else at
    code = None if match[1] == "(none)" else int(match[1])
    return CommandEnd(code, output[begin + len("Output: ") : end])


def _in_json(output: str) -> list[CommandEnd]:
    """Read what tools give as JSON: Cline's list, one for each command, and objects with an exit code."""
    try:
        content: Any = orjson.loads(output)
    except orjson.JSONDecodeError:
        return []
    ends = [_of_object(part) for part in (content if isinstance(content, list) else [content])]
    return [end for end in ends if end] if all(ends) else []


def _of_object(content: Any) -> CommandEnd | None:
    if not isinstance(content, dict):
        return None
    if isinstance(content.get("success"), bool) and isinstance(output := content.get("result"), str):
        outcome = _outcome(ANSI.sub("", output))
        return outcome._replace(code=0) if content["success"] else outcome
    metadata = content.get("metadata")
    code = (metadata if isinstance(metadata, dict) else content).get("exit_code")
    texts = [content[name] for name in ("output", "stdout", "stderr") if isinstance(content.get(name), str)]
    return CommandEnd(code, ANSI.sub("", "\n".join(texts))) if type(code) is int and texts else None


# -- commands that run on ----------------------------------------------------------------------------------------------

OPENCLAW_RUNNING = re.compile(r"Command still running \(session ([^,\s]+), pid ")
OPENCLAW_ENDS = re.compile(r"\n\nProcess exited with code (-?\d+)\.\s*\Z")
SESSIONS = ("session_id", "sessionId")
READ_ONLY = frozenset({"poll", "log", "list"})
"""What OpenClaw's ``process`` does without touching the command."""


@dataclass
class RunningOn:
    """A command that still ran when its tool answered.

    Codex and OpenClaw wait ten seconds for a command, then let the model ask again and again.
    """

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
