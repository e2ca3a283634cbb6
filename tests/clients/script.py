"""What the model of these tests answers: each question its own way, so that no two answers are alike."""

from __future__ import annotations

import itertools
import re
from typing import Any

from tests.support.scripted_model import Asked, Call, Said

NUMBER = re.compile(r"number (\d+)")
TOOL = "Run the command that tells the colour"
PRINTED = "sky-42"
# Qwen Code now and then loses what a command printed that ends at once.
COMMAND = "echo sky-$((6 * 7)) && sleep 0.5"
ERRANDS = {
    "You are a title generator": "Blue sky",
    "You are naming a coding session": '{"title": "Blue sky"}',
    "managed memory extraction subagent": "There is nothing to remember.",
}
"""Words of the system prompts of requests that are the agent's own, and the answers."""
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


def question(of_tool: bool = False) -> tuple[str, str]:
    """Return a question that nobody asked before, and the answer to it."""
    number = next(_numbers)
    if of_tool:
        return f"{TOOL}, number {number}.", f"The command of number {number} printed {PRINTED}."
    return f"Why is sky number {number} blue?", f"The sky of number {number} scatters what is blue."


def decide(asked: Asked) -> Said:
    """Answer one request."""
    for words, answer in ERRANDS.items():
        if words in asked.system:
            return answer
    history = str(asked.body.get("messages") or asked.body["input"])
    number = ["none", *NUMBER.findall(history)][-1]
    if asked.results:
        printed = PRINTED if PRINTED in asked.results[-1] else asked.results[-1]
        return f"The command of number {number} printed {printed}."
    shell = next((name for name in SHELLS if name in asked.tools), None)
    if shell and any(TOOL in text for text in asked.said):
        return Call(shell, SHELLS[shell])
    return f"The sky of number {number} scatters what is blue."
