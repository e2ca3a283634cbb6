"""What the model of these tests answers: each question its own way, so that no two answers are alike."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from typing import Any

from tests.support.patience import within
from tests.support.scripted_model import Asked
from tests.support.wires import Says

NUMBER = re.compile(r"number (\d+)")
OPENCLAW_CONTEXT = "OPENCLAW_INTERNAL_CONTEXT"
"""In what OpenClaw adds after a message, which may quote others."""
TOOL = "Run the command that tells the colour"
PRINTED = "sky-42"
# Qwen Code now and then loses what a command printed that ends at once.
COMMAND = "echo sky-$((6 * 7)) && sleep 0.5"
SIDE_REQUESTS = {
    "You are a title generator": "Blue sky",
    "You are naming a coding session": '{"title": "Blue sky"}',
    "managed memory extraction subagent": "There is nothing to remember.",
}
"""Words of the system prompts of requests that are the agent's own, and the answers."""
SOUGHT = "Look up the tool that ends a task"
DELEGATED = "Have the sky looked at"
ORDER = "Look at the sky"
FOUND = "There are few clouds"
SUB_AGENTS: dict[str, dict[str, Any]] = {
    "Agent": {"subagent_type": "looker", "run_in_background": False},
    "agent": {"subagent_type": "looker", "run_in_background": False},
    "task": {"subagent_type": "general"},
}
"""The tools that give orders to sub-agents, by their names in the agents, with what each wants to be told besides."""
CODEX_AGENTS = "multi_agent_v1"
"""A namespace of tools: one gives the order, another one waits."""
CODEX_AGENT = re.compile(r'"agent_id":"([^"]+)"')
SEARCH, REFERENCE = "ToolSearch", "tool_reference"
"""A tool, and a word in its result if that is translated."""
ANEW = "Say it in words that you have not used"
SHELLS: dict[str, dict[str, Any]] = {
    "Bash": {"command": COMMAND, "description": "Tell the colour"},
    "bash": {"command": COMMAND, "description": "Tell the colour"},
    "exec_command": {"cmd": COMMAND},
    "exec": {"command": COMMAND},
    "run_shell_command": {"command": COMMAND, "is_background": False},
    "run_commands": {"commands": [COMMAND]},
    "tell": {},
}
"""The tools that run commands, by their names in the agents, with what each wants to be told."""

_numbers = itertools.count(100)
_takes: Counter[str] = Counter()


def question(of_tool: bool = False) -> tuple[str, str]:
    """Return a question that nobody asked before, and the answer to it."""
    number = next(_numbers)
    if of_tool:
        return f"{TOOL}, number {number}.", f"The command of number {number} printed {PRINTED}."
    return f"Why is sky number {number} blue?", _of_the_sky(number)


def sought() -> tuple[str, str]:
    """Return a question that nobody asked before, for a tool that has to be looked up, and the answer to it."""
    number = next(_numbers)
    return f"{SOUGHT}, number {number}.", _of_the_sky(number)


def delegated() -> tuple[str, str, str]:
    """Return a question for a sub-agent that nobody asked before, what the sub-agent says, and the answer."""
    number = next(_numbers)
    return f"{DELEGATED}, number {number}.", f"{FOUND} in number {number}.", f"Number {number} was looked at."


def words_anew() -> tuple[str, tuple[str, str]]:
    """Return a question that nobody asked before, and the two answers that it gets when it is asked twice."""
    number = next(_numbers)
    return f"{ANEW}, number {number}.", (f"Take 1 of number {number}.", f"Take 2 of number {number}.")


def decide(asked: Asked) -> Says:
    for words, answer in SIDE_REQUESTS.items():
        if words in asked.system:
            return Says(answer)
    questions = [text for text in asked.said if OPENCLAW_CONTEXT not in text and NUMBER.search(text)]
    # After a compaction there may be many questions at once: the last one is meant.
    meant = questions[-1] if questions else ""
    number = ["none", *NUMBER.findall(meant or str(asked.body.get("messages") or asked.body["input"]))][-1]
    if ORDER in meant:
        return Says(f"{FOUND} in number {number}.")
    if SOUGHT in meant and SEARCH in asked.tools and not asked.results:
        return _call(SEARCH, {"query": "select:TaskStop", "max_results": 1})
    if DELEGATED in meant and (call := _delegating(asked, f"{ORDER}, number {number}.")):
        return call
    if asked.results and FOUND in asked.results[-1]:
        return Says(f"Number {number} was looked at.")
    if asked.results and (ordered := CODEX_AGENT.search(asked.results[-1])):
        arguments = {"targets": [ordered[1]], "timeout_ms": round(within(60_000))}
        return _of_codex(asked, "wait_agent", arguments)
    if any(asked.results) and REFERENCE not in asked.results[-1]:
        printed = PRINTED if PRINTED in asked.results[-1] else asked.results[-1]
        return Says(f"The command of number {number} printed {printed}.")
    shell = next((name for name in SHELLS if name in asked.tools), None)
    if shell and TOOL in meant:
        return _call(shell, SHELLS[shell])
    if ANEW in meant:
        _takes[number] += 1
        return Says(f"Take {_takes[number]} of number {number}.")
    return Says(_of_the_sky(number))


def _delegating(asked: Asked, order: str) -> Says | None:
    """Return the call that has a sub-agent carry out an order."""
    if any(tool.startswith(CODEX_AGENTS) for tool in asked.tools):
        return _of_codex(asked, "spawn_agent", {"message": order})
    tool = next((name for name in SUB_AGENTS if name in asked.tools), None)
    return _call(tool, {**SUB_AGENTS[tool], "description": "Look", "prompt": order}) if tool else None


def _of_codex(asked: Asked, tool: str, arguments: dict[str, Any]) -> Says:
    """Return the call of a tool of the namespace, which is a part of the name if the request is translated."""
    if CODEX_AGENTS in asked.tools:
        return _call(tool, arguments, CODEX_AGENTS)
    return _call(f"{CODEX_AGENTS}__{tool}", arguments)


def _of_the_sky(number: object) -> str:
    return f"The sky of number {number} scatters what is blue."


def _call(tool: str, arguments: dict[str, Any], namespace: str = "") -> Says:
    return Says(tool=tool, arguments=arguments, namespace=namespace)
