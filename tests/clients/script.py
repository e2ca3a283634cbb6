"""What the model of these tests answers: a plain answer, or a tool call where it is asked for one."""

from __future__ import annotations

from typing import Any

from tests.support.scripted_model import Asked, Call, Said

QUESTION = "Why is the sky blue?"
ANSWER = "Rayleigh scattering, which is strongest for blue light."
ASK_FOR_TOOL = "Run the command that tells the colour."
COMMAND = "echo sky-$((6 * 7))"
PRINTED = "sky-42"
TITLES = ("You are a title generator", "You are naming a coding session")
TITLE = "Blue sky"
AFTER_TOOL = "The command printed it: "

SHELLS: dict[str, dict[str, Any]] = {
    "Bash": {"command": COMMAND, "description": "Tell the colour"},
    "bash": {"command": COMMAND, "description": "Tell the colour"},
    "exec_command": {"cmd": COMMAND},
    "exec": {"command": COMMAND},
    "run_shell_command": {"command": COMMAND, "is_background": False},
    "run_commands": {"commands": [COMMAND]},
    "execute_command": {"command": COMMAND},
}
"""The tools that run commands, by their names in the agents, with what each wants to be told."""


def decide(asked: Asked) -> Said:
    """Answer one request."""
    if any(words in asked.system for words in TITLES):
        return TITLE
    if asked.results:
        return AFTER_TOOL + (PRINTED if PRINTED in asked.results[-1] else f"not {asked.results[-1]}")
    if any(ASK_FOR_TOOL in text for text in asked.said):
        shell = next((name for name in SHELLS if name in asked.tools), None)
        if shell:
            return Call(shell, SHELLS[shell])
    return ANSWER
