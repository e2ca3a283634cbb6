"""What agents ask for themselves, in the words of those that scripts/clients installs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from burnish.proxy.http.errors import NotFound
from burnish.proxy.log import Log
from burnish.proxy.log.side_requests import is_side_request
from burnish.proxy.records import Completion
from tests.proxy.log.exchanges import CALL, RESULT, all_rated, assistant, capture, rate, system, user
from tests.support.records import PLAIN, changed

CLAUDE = "You are Claude Code, Anthropic's official CLI for Claude."
NAMING = "You are naming a coding session so the user can pick it out of a long list of sessions. …"
CLAUDE_TITLE = [{"type": "text", "text": text} for text in (CLAUDE, NAMING)]
CLAUDE_COMPACTION = (
    "CRITICAL: Respond with TEXT ONLY. Do NOT call any tools.\n\n- Do NOT use Read, Bash, Grep, …\n\n"
    "Your task is to create a detailed summary of the conversation so far, …"
)
CODEX_COMPACTION = "You are performing a CONTEXT CHECKPOINT COMPACTION. Create a handoff summary for …"
QWEN_COMPACTION = "You are the component that summarizes a conversation when its context window is about to …"
QWEN_CUSTOM = "You look things up.\n\nImportant Rules:\n - You operate in non-interactive mode: do not ask …"
CONTINUE_COMPACTION = "Please provide a concise summary of our conversation so far, capturing the key …"
OPENCODE = "You are opencode, an interactive CLI tool that helps users with software engineering tasks."
OPENCODE_COMPACTION = (
    "You are a context summarization agent. You are given a conversation between a user and …"
)
OPENCODE_TITLE = "You are a title generator. You output ONLY a thread title. Nothing else.\n\n<task>\n…"


def codex(kind: str, source: str) -> dict[str, Any]:
    said = {"request_kind": kind, "thread_source": source, "model": "default"}
    return {"client_metadata": {"x-codex-turn-metadata": json.dumps(said), "thread_id": "1"}}


def completion(messages: list[dict[str, Any]], params: dict[str, Any], **changes: Any) -> Completion:
    return changed(PLAIN, messages=tuple(messages), params=params, **changes)


@pytest.mark.parametrize(
    ("messages", "params"),
    [
        ([{"role": "system", "content": CLAUDE_TITLE}, user("<session>\nHi\n</session>\n\nWrite …")], {}),
        ([system(f"{CLAUDE}You are an agent for Claude Code, Anthropic's …"), user("Look.")], {}),
        ([system("You are a file search specialist for Claude Code, …"), user("Look.")], {}),
        ([system(CLAUDE), user("Hi"), assistant("Hello!"), user(CLAUDE_COMPACTION)], {}),
        ([system("You are now acting as the managed memory extraction subagent for …"), user("Hi")], {}),
        ([system("You are a general-purpose subagent working for a parent agent. …"), user("Look.")], {}),
        ([system(QWEN_CUSTOM), user("Look.")], {}),
        ([system(OPENCODE_TITLE), user("Generate a title for this conversation:\n"), user('"Hi"')], {}),
        ([user("Generate a concise, single-line task title")], codex("turn", "thread_title")),
        ([user("Hi"), assistant("Hello!"), user(CODEX_COMPACTION)], {}),
        ([system("You are Qwen Code, …"), user("Hi"), assistant("Hello!"), user(QWEN_COMPACTION)], {}),
        ([system(QWEN_COMPACTION), user("Hi"), assistant("Hello!"), user("First, reason in your …")], {}),
        ([user("Hi"), assistant("Hello!"), user(CONTINUE_COMPACTION)], {}),
        ([system(OPENCODE_COMPACTION), user("Here is the conversation so far:\n\n…")], {}),
        ([user("### Task:\nGenerate a concise title summarizing the chat history.\n### …")], {}),
        ([user("### Task:\nGenerate 1-3 broad tags categorizing the main themes of the …")], {}),
        ([user("### Task:\nPredict 3-5 useful messages this user might naturally send …")], {}),
        ([user("Hi")], codex("compaction", "user")),
        ([user("Look.")], codex("turn", "subagent")),
    ],
)
def test_a_side_request_is_known(messages: list[dict[str, Any]], params: dict[str, Any]):
    assert is_side_request(completion(messages, params))


def test_what_the_headers_say_is_believed():
    assert is_side_request(completion([system("You look things up."), user("Look.")], {}, sub_agent=True))


@pytest.mark.parametrize(
    ("messages", "params"),
    [
        ([user("Hi")], {}),
        ([], {}),
        ([system(CLAUDE), user("Hi")], {}),
        ([system("You are a Claude agent, built on Anthropic's Claude Agent SDK."), user("Hi")], {}),
        ([system(OPENCODE), user('"You are a title generator. You output ONLY a thread title."')], {}),
        ([user("### Task:\nRespond to the user query using the provided context, …")], {}),
        ([user("Hi")], codex("turn", "user")),
        ([user("Hi")], {"client_metadata": {"x-codex-turn-metadata": "{"}}),
        ([user("Hi")], {"client_metadata": {"x-codex-turn-metadata": "[]"}}),
        ([user("Hi")], {"client_metadata": "of another client"}),
        # It was compacted a while ago; what is said now is said to the person.
        ([user("Hi"), assistant("Hello!"), user(CLAUDE_COMPACTION), assistant("…"), user("Go on")], {}),
    ],
)
def test_whatever_else_is_a_turn_of_the_person(messages: list[dict[str, Any]], params: dict[str, Any]):
    assert not is_side_request(completion(messages, params))


async def test_the_last_answer_is_the_last_one_that_the_person_was_given(log: Log):
    turn = [system(OPENCODE), user("Why is the sky blue?")]
    meant = capture(log, turn, "Rayleigh.", session="s1")
    capture(log, [system(OPENCODE_TITLE), user('"Why is the sky blue?"')], "Sky", session="s1")
    conversation = (await log.completion(meant)).conversation_id
    assert (await log.resolve(last_of="local")).id == meant
    assert (await log.resolve(last_of="local", session="s1")).id == meant
    assert (await log.resolve(conversation_id=conversation)).id == meant


@pytest.mark.parametrize(
    ("messages", "passed_over"),
    [
        ([system("Titles."), user("Your task: Create a 2-4 word title for this conversation.\n…")], True),
        ([user("Generate a descriptive name for this conversation.\n\nThe name should …")], True),
        ([user("Write a short, concise summary of the following chat:\n…")], True),
        ([user("Please suggest 3 tags for the discussion below.")], True),
        ([user("Summarize our conversation in five words.")], True),
        ([user("Hi"), assistant("Hello!"), user("Create a title for this conversation.")], False),
        ([user("Write a summary of this book.")], False),
        ([user("Why do people create a title for the conversation?")], False),
    ],
)
async def test_a_title_is_not_the_last_answer(log: Log, messages: list[dict[str, Any]], passed_over: bool):
    """But it is a person's request in its own conversation, or if there is no other."""
    alone = capture(log, messages, "Sky", caller="eve")
    assert (await log.resolve(last_of="eve")).id == alone
    first, title = capture(log, [user("Why?")], "Rayleigh."), capture(log, messages, "Sky")
    assert (await log.resolve(last_of="local")).id == (first if passed_over else title)
    conversation = (await log.completion(title)).conversation_id
    assert (await log.resolve(conversation_id=conversation)).id == title
    assert (await log.resolve_history([*messages, assistant("Sky")], "local")).id == title


RAYLEIGH = "Sunlight is scattered by the air, blue light far more than red light."
ASKED_AT = 1_790_000_000.0


@pytest.mark.parametrize(
    ("later", "meant"),
    [
        ({}, "first"),
        ({"created_at": ASKED_AT + 60}, "second"),  # a person had time to paste it
        ({"caller": "eve"}, "first"),
        ({"params": {"tools": [{"type": "function", "function": {"name": "f"}}]}}, "second"),
        ({"says": "Judge this: Sunlight."}, "second"),
    ],
)
async def test_a_quoting_conversation_is_passed_over(log: Log, later: dict[str, Any], meant: str):
    first = capture(log, [user("Why?")], RAYLEIGH, created_at=ASKED_AT, total_s=2.0)
    says = later.pop("says", f"Judge this.\n\nAnswer: {RAYLEIGH}\n")
    second = capture(log, [user(says)], "Good.", **{"created_at": ASKED_AT + 3, "total_s": 1.0} | later)
    found = (await log.resolve(last_of="local")).id
    assert found == {"first": first, "second": second}[meant]
    assert (await log.resolve(completion_id=second)).id == second


async def test_what_follows_a_compaction_is_the_last_answer(log: Log):
    """The history that goes on after it quotes the summary, in a conversation that looks new."""
    asks = [user("Why?"), assistant("Rayleigh."), user("Summarize our conversation.")]
    capture(log, asks, RAYLEIGH, created_at=ASKED_AT, total_s=2.0)
    goes_on = capture(log, [user(f"Before: {RAYLEIGH} And now?")], "Go.", created_at=ASKED_AT + 3)
    assert (await log.resolve(last_of="local")).id == goes_on


async def test_a_side_request_alone_is_no_answer_to_anybody(log: Log):
    title = capture(log, [system(OPENCODE_TITLE), user("Hi")], "Greeting")
    with pytest.raises(NotFound):
        await log.resolve(last_of="local")
    assert (await log.resolve(completion_id=title)).id == title


async def test_a_summary_that_a_history_begins_with_is_not_what_a_rating_means(log: Log):
    summary = capture(log, [system(OPENCODE_COMPACTION), user("Here is …")], "They asked for the sky.")
    history = [user("What did we do so far?"), assistant("They asked for the sky.")]
    with pytest.raises(NotFound, match="summary"):
        await log.resolve_history(history, "local", None)
    assert (await log.resolve(completion_id=summary)).id == summary


LOOKED_UP = "The keys are in the drawer, where they were put yesterday."
KEYS = [user("Where are the keys?")]
FOUND = RESULT | {"content": LOOKED_UP}


async def delegated(log: Log) -> tuple[str, str, str]:
    """The person asks, a sub-agent looks it up in two steps, the agent answers; another sub-agent is still at work."""
    called = capture(log, KEYS, CALL, session="s1")
    looks = [system("You look things up."), user("Find the keys.")]
    capture(log, looks, CALL, session="s1", sub_agent=True)
    capture(log, [*looks, CALL, FOUND], LOOKED_UP, session="s1", sub_agent=True)
    answered = capture(log, [*KEYS, CALL, FOUND], LOOKED_UP, session="s1")
    tidies = [system("You tidy up."), user("Tidy the drawer.")]
    later = capture(log, tidies, "Tidy.", session="s1", sub_agent=True)
    return called, answered, later


async def test_what_a_sub_agent_says_is_said_to_nobody(log: Log):
    _, answered, later = await delegated(log)
    assert (await log.resolve(last_of="local")).id == answered
    assert (await log.resolve(last_of="local", session="s1")).id == answered
    history = [*KEYS, CALL, FOUND, assistant(LOOKED_UP)]
    assert (await log.resolve_history(history, "local", None)).id == answered
    assert (await log.completion(later)).asked.sub_agent is True
    assert (await log.completion(answered)).asked.sub_agent is False
    assert [each.asked.sub_agent for each in await log.completions()] == [True, False, True, True, False]


async def test_a_rating_of_a_turn_is_about_no_sub_agent(log: Log):
    """Its requests are a conversation of their own."""
    called, answered, _ = await delegated(log)
    await rate(log, answered, -1.0, scope="turn")
    assert [each.completion.id for each in await all_rated(log)] == [called, answered]


async def test_a_sub_agent_that_goes_on_from_the_history_is_a_branch_of_its_own(log: Log):
    """A fork begins with what the agent said and heard until then; its order is neither a turn nor what came next."""
    called = capture(log, KEYS, CALL)
    forked = RESULT | {"content": "Fork started."}
    history = [*KEYS, CALL, forked, user("You are a fork. Find the keys.")]
    fork = capture(log, history, LOOKED_UP, sub_agent=True)
    answered = capture(log, [*KEYS, CALL, FOUND], "In the drawer.")
    assert (await log.completion(fork)).conversation_id == (await log.completion(called)).conversation_id
    await rate(log, answered, scope="turn")
    rated = await all_rated(log)
    assert [each.completion.id for each in rated] == [called, answered]
    assert [await log.next_turn(each.completion.id) for each in rated] == [None, None]
