"""Reads how a command ended from the result that an agent's tool gives to the model. Pure.

Each agent words it in its own way, as ``tests/parts/signals`` has it from the real programs. Some never say the exit
code (opencode), some only if it isn't 0 (Claude Code, OpenClaw). Nothing is made of what isn't said.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import orjson


class Outcome(NamedTuple):
    """The end of a command."""

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


def outcomes(result: str) -> list[Outcome]:
    """Return the end of each command of a tool's call: one, save for tools that run several."""
    if len(result) > LONGEST:
        result = f"{result[:HEAD]}\n{result[HEAD - LONGEST :]}"
    if result.startswith(("[", "{")) and (found := _in_json(result)):
        return found
    return [_outcome(ANSI.sub("", result))]


def _outcome(result: str) -> Outcome:
    if CODEX_RUNNING.match(result):
        return Outcome(None, "")
    if found := CODEX.match(result):
        return Outcome(int(found[1]), result[found.end() :])
    if found := CLAUDE_CODE.match(result):
        return Outcome(int(found[1]), result[found.end() :])
    if result.startswith(QWEN_CODE) and (end := _of_qwen_code(result)):
        return end
    if found := CLINE.match(result):
        return Outcome(int(found[1]), result[found.end() :])
    if found := OPENCLAW.search(result.rstrip()):
        return Outcome(int(found[1]), result[: found.start()].rstrip())
    return Outcome(None, result)


def _of_qwen_code(result: str) -> Outcome | None:
    at = result.rfind("\nExit Code: ")
    found = QWEN_CODE_ENDS.match(result, at) if at > 0 else None
    begin = 0 if result.startswith("Output: ") else result.find("\nOutput: ") + 1
    if found is None or not result.startswith("Output: ", begin):
        return None
    error = result.rfind("\n", 0, at)
    end = error if result.startswith("\nError: ", error) else at
    code = None if found[1] == "(none)" else int(found[1])
    return Outcome(code, result[begin + len("Output: ") : end])


def _in_json(result: str) -> list[Outcome]:
    """Read what tools give as JSON: Cline's list, one for each command, and objects with an exit code."""
    try:
        given: Any = orjson.loads(result)
    except orjson.JSONDecodeError:
        return []
    found = [_of_object(each) for each in (given if isinstance(given, list) else [given])]
    return [each for each in found if each] if all(found) else []


def _of_object(given: Any) -> Outcome | None:
    if not isinstance(given, dict):
        return None
    if isinstance(given.get("success"), bool) and isinstance(output := given.get("result"), str):
        said = _outcome(ANSI.sub("", output))
        return said._replace(code=0) if given["success"] else said
    metadata = given.get("metadata")
    code = (metadata if isinstance(metadata, dict) else given).get("exit_code")
    texts = [given[name] for name in ("output", "stdout", "stderr") if isinstance(given.get(name), str)]
    return Outcome(code, ANSI.sub("", "\n".join(texts))) if type(code) is int and texts else None
