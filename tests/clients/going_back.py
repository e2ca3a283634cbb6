"""How a session goes back before its last question, or is compacted, where an agent's command line has no word for it.

Each as the interface of the agent's makers does it: Claude Code's SDK, Codex's app-server, opencode's server.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from tests.clients.agent import Agent, until
from tests.clients.test_agents import CODEX
from tests.support.llama_server import free_port
from tests.support.patience import within

Command = tuple[str, ...]
ANSWER_S = 60.0
READY_S = 1.0
"""In which a server that is ready answers; opencode leaves a request unanswered that comes while it starts."""


def claude_code(agent: Agent) -> Command:
    """Resume at the last entry before the last question."""
    transcript = agent.newest(".claude/projects/*/*.jsonl")
    entries = [json.loads(line) for line in transcript.read_text().splitlines()]
    said = [each for each in entries if each.get("type") in ("user", "assistant") and "uuid" in each]
    last = max(index for index, each in enumerate(said) if _is_question(each))
    session, entry = transcript.stem, said[last - 1]["uuid"]
    return ("claude", "-p", "--resume", session, "--resume-session-at", entry)


def _is_question(entry: dict[str, Any]) -> bool:
    content = entry["message"]["content"]
    return entry["type"] == "user" and "number" in str(content) and "tool_result" not in str(content)


def codex_thread(agent: Agent) -> str:
    """Return the id of the latest thread."""
    return agent.newest(".codex/sessions/*/*/*/*.jsonl").stem[-36:]


def codex(agent: Agent) -> Command:
    """Fork the thread before its last turn."""
    entries = map(json.loads, agent.newest(".codex/sessions/*/*/*/*.jsonl").read_text().splitlines())
    turns = dict.fromkeys(each["payload"]["turn_id"] for each in entries if each["type"] == "turn_context")
    thread, before = codex_thread(agent), list(turns)[-2]
    hello = {"clientInfo": {"name": "tests", "title": "tests", "version": "1"}}
    with agent.running("codex", "app-server", talks=True) as server:
        _asked(server, 1, "initialize", hello)
        forked = _asked(server, 2, "thread/fork", {"threadId": thread, "lastTurnId": before})
    return (*CODEX, "resume", forked["thread"]["id"])


def _asked(server: subprocess.Popen[str], number: int, method: str, params: dict[str, Any]) -> dict[str, Any]:
    assert server.stdin and server.stdout
    server.stdin.write(json.dumps({"id": number, "method": method, "params": params}) + "\n")
    server.stdin.flush()
    for line in server.stdout:
        said = json.loads(line)
        if said.get("id") == number:
            return said["result"]
    raise AssertionError(f"codex app-server ended at {method}")


def opencode_compacts(agent: Agent) -> None:
    """Have the latest session summarised."""
    with _opencode(agent) as server:
        model = {"providerID": "burnish", "modelID": "default"}
        server.post(f"/session/{_session(server)}/summarize", json=model).raise_for_status()


def opencode(agent: Agent) -> Command:
    """Copy the latest session up to its last question."""
    with _opencode(agent) as server:
        session = _session(server)
        messages = server.get(f"/session/{session}/message").raise_for_status().json()
        asked = [each["info"]["id"] for each in messages if each["info"]["role"] == "user"]
        copy = (
            server.post(f"/session/{session}/fork", json={"messageID": asked[-1]}).raise_for_status().json()
        )
    return ("opencode", "run", "--session", copy["id"])


@contextmanager
def _opencode(agent: Agent) -> Iterator[httpx.Client]:
    port = free_port()
    with (
        agent.running("opencode", "serve", "--port", str(port)),
        httpx.Client(
            base_url=f"http://127.0.0.1:{port}",
            params={"directory": str(agent.work)},
            timeout=within(ANSWER_S),
        ) as client,
    ):
        until(lambda: _answers(client))
        yield client


def _answers(client: httpx.Client) -> bool:
    try:
        return client.get("/session", timeout=within(READY_S)).is_success
    except httpx.TransportError:
        return False


def _session(client: httpx.Client) -> str:
    sessions = client.get("/session").raise_for_status().json()
    return str(max(sessions, key=lambda each: each["time"]["updated"])["id"])
