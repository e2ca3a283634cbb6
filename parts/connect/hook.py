"""``burnish hook``: runs ``/rl`` commands for agents that don't send them to the model, and offers a one-key rating.

A failure must not disturb the agent: the answer describes the error, and the exit code is 0.
"""

from __future__ import annotations

import json
import sys

import typer

from burnish.proxy.http.errors import BurnishError
from burnish.proxy.plain import plain
from burnish.terminal.client import Proxy
from burnish.terminal.errors import CommandFailed
from burnish.terminal.terminal import Url

COMMAND = "/rl"
KEYS = {"+": "/rl good", "-": "/rl bad"}
"""What rates the last answer if it is the whole message; nobody means either as a question."""
OFFER = "burnish: was that good? + yes, - no, /rl bad <why> says more"
SESSION_HEADER = "x-burnish-session"


def hook(url: Url = None) -> None:
    try:
        request = json.load(sys.stdin)
        event, session = str(request["hook_event_name"]), str(request["session_id"])
        prompt = str(request["prompt"]) if event != "Stop" else ""
    except (ValueError, LookupError, TypeError) as error:
        typer.echo(f"burnish: expected the JSON of an agent's hook on stdin: {error}", err=True)
        return
    if event == "Stop":
        typer.echo(json.dumps({"systemMessage": OFFER}))
        return
    if event == "UserPromptSubmit":  # it sees /rl, too, which is the business of the hook of that command
        prompt = KEYS.get(prompt.strip(), "")
    if prompt.split(maxsplit=1)[:1] != [COMMAND]:
        return
    try:
        answer = Proxy(url).post("/burnish/command", {"text": prompt}, headers={SESSION_HEADER: session})[
            "answer"
        ]
    except (CommandFailed, BurnishError) as error:
        answer = f"burnish: {error}"
    hidden = {"hookEventName": event, "suppressOriginalPrompt": True}
    typer.echo(json.dumps({"decision": "block", "reason": plain(answer), "hookSpecificOutput": hidden}))
