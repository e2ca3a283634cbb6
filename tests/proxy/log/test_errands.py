"""What agents ask for themselves, in the words of those that scripts/clients installs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from burnish.proxy.errors import NotFound
from burnish.proxy.log.errands import is_errand
from tests.proxy.log.exchanges import assistant, capture, opened, system, user

CLAUDE = "You are Claude Code, Anthropic's official CLI for Claude."
CLAUDE_TITLE = [
    {"type": "text", "text": CLAUDE},
    {
        "type": "text",
        "text": "You are naming a coding session so the user can pick it out of a long list of sessions. …",
    },
]
CLAUDE_COMPACTION = (
    "CRITICAL: Respond with TEXT ONLY. Do NOT call any tools.\n\n- Do NOT use Read, Bash, Grep, …\n\n"
    "Your task is to create a detailed summary of the conversation so far, …"
)
CODEX_COMPACTION = "You are performing a CONTEXT CHECKPOINT COMPACTION. Create a handoff summary for …"
OPENCODE = "You are opencode, an interactive CLI tool that helps users with software engineering tasks."
OPENCODE_TITLE = "You are a title generator. You output ONLY a thread title. Nothing else.\n\n<task>\n…"


def codex(kind: str, source: str) -> dict[str, Any]:
    said = {"request_kind": kind, "thread_source": source, "model": "default"}
    return {"client_metadata": {"x-codex-turn-metadata": json.dumps(said), "thread_id": "1"}}


@pytest.mark.parametrize(
    ("messages", "params"),
    [
        ([{"role": "system", "content": CLAUDE_TITLE}, user("<session>\nHi\n</session>\n\nWrite …")], {}),
        (
            [system(f"{CLAUDE}You are an agent for Claude Code, Anthropic's official CLI …"), user("Look.")],
            {},
        ),
        ([system("You are a file search specialist for Claude Code, …"), user("Look.")], {}),
        ([system(CLAUDE), user("Hi"), assistant("Hello!"), user(CLAUDE_COMPACTION)], {}),
        (
            [system("You are now acting as the managed memory extraction subagent for an AI …"), user("Hi")],
            {},
        ),
        ([system("You are a general-purpose subagent working for a parent agent. …"), user("Look.")], {}),
        ([system(OPENCODE_TITLE), user("Generate a title for this conversation:\n"), user('"Hi"')], {}),
        ([user("Generate a concise, single-line task title")], codex("turn", "thread_title")),
        ([user("Hi"), assistant("Hello!"), user(CODEX_COMPACTION)], {}),
        ([user("Hi")], codex("compaction", "user")),
        ([user("Look.")], codex("turn", "subagent")),
    ],
)
def test_an_errand_is_known(messages: list[dict[str, Any]], params: dict[str, Any]):
    assert is_errand(messages, params)


@pytest.mark.parametrize(
    ("messages", "params"),
    [
        ([user("Hi")], {}),
        ([], {}),
        ([system(CLAUDE), user("Hi")], {}),
        ([system("You are a Claude agent, built on Anthropic's Claude Agent SDK."), user("Hi")], {}),
        ([system(OPENCODE), user('"You are a title generator. You output ONLY a thread title."')], {}),
        ([user("Hi")], codex("turn", "user")),
        ([user("Hi")], {"client_metadata": {"x-codex-turn-metadata": "{"}}),
        ([user("Hi")], {"client_metadata": {"x-codex-turn-metadata": "[]"}}),
        ([user("Hi")], {"client_metadata": "of another client"}),
        # It was compacted a while ago; what is said now is said to the person.
        ([user("Hi"), assistant("Hello!"), user(CLAUDE_COMPACTION), assistant("…"), user("Go on")], {}),
    ],
)
def test_whatever_else_is_a_turn_of_the_person(messages: list[dict[str, Any]], params: dict[str, Any]):
    assert not is_errand(messages, params)


async def test_the_last_answer_is_the_last_one_that_the_person_was_given(tmp_path: Path):
    async with opened(tmp_path) as log:
        turn = [system(OPENCODE), user("Why is the sky blue?")]
        meant = capture(log, turn, "Rayleigh.", session="s1")
        capture(log, [system(OPENCODE_TITLE), user('"Why is the sky blue?"')], "Sky", session="s1")
        conversation = (await log.completion(meant)).conversation_id
        assert (await log.resolve(last_of="local")).id == meant
        assert (await log.resolve(last_of="local", session="s1")).id == meant
        assert (await log.resolve(conversation_id=conversation)).id == meant


async def test_an_errand_alone_is_no_answer_to_anybody(tmp_path: Path):
    async with opened(tmp_path) as log:
        title = capture(log, [system(OPENCODE_TITLE), user("Hi")], "Greeting")
        with pytest.raises(NotFound):
            await log.resolve(last_of="local")
        assert (await log.resolve(completion_id=title)).id == title
