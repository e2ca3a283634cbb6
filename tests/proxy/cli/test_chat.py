from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.burnish import Burnish
from tests.support.inprocess import serving
from tests.support.program import call, on_terminal, run
from tests.support.upstream import Script, events, reply, stream, upstream


def ratings(url: str, count: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = httpx.get(url + f"/v1/feedback?limit={count}").json()["data"]
    return found


def chat(url: str, lines: Sequence[str], *options: str) -> str:
    """Type these lines; return what is printed. Answers are cut: the small model may ramble for minutes."""
    done = call("chat", "--max-tokens", "16", *options, url=url, stdin="\n".join(lines) + "\n")
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_talk_with_ratings_from_a_file(burnish: Burnish) -> None:
    lines = ["Say one word.", "nonsense", "b too dull", "/undo", "And another.", "4", "/quit"]
    assert "not 'nonsense'" in chat(burnish.url, lines)
    last, first = ratings(burnish.url, 2)
    assert (last["reward"], last["undone_at"]) == (0.5, None)
    assert (first["reward"], first["comment"]) == (-1.0, "too dull")
    assert first["undone_at"] is not None


def test_a_comment_alone_an_undo_and_a_second_thought(burnish: Burnish) -> None:
    lines = ["Say one word.", "c", "g", "Say another.", "u", "c [/] too dull", "q"]
    assert "a comment needs words" in chat(burnish.url, lines)
    comment, good = ratings(burnish.url, 2)
    assert (comment["reward"], comment["comment"]) == (None, "[/] too dull")
    assert good["reward"] == 1.0
    assert good["undone_at"] is not None


def test_the_conversation_is_kept_until_a_new_one_is_wanted(burnish: Burnish) -> None:
    lines = ["Say one word.", "s", "Say another.", "s", "/new", "Say a third.", "s"]
    chat(burnish.url, lines, "--system", "Be brief")
    third, second, first = httpx.get(burnish.url + "/burnish/completions?limit=3").json()["data"]
    assert first["conversation_id"] == second["conversation_id"] != third["conversation_id"]
    whole = httpx.get(burnish.url + f"/burnish/completions/{second['id']}").json()
    assert [message["role"] for message in whole["messages"]] == ["system", "user", "assistant", "user"]
    assert whole["params"]["max_tokens"] == 16


def test_a_command_in_the_chat_is_answered_and_not_rated(burnish: Burnish) -> None:
    printed = chat(burnish.url, ["Say one word.", "", "/rl good", "/rl status"])
    assert printed.count("rate (") == 1
    assert "answers rated" in printed
    assert ratings(burnish.url, 1)[0]["target"] == "rl"


async def talk(script: Script, tmp_path: Path, *lines: str) -> str:
    """Chat with a scripted upstream behind a burnish of its own; return what is printed."""
    async with upstream(script) as server, serving(tmp_path, upstream=server.url, model="mock") as (url, _):
        done = await asyncio.to_thread(run, "chat", url=url, stdin="".join(line + "\n" for line in lines))
    assert done.returncode == 0, done.stderr
    return done.stdout


async def test_what_a_model_says_is_shown_as_it_is_and_cannot_steer_the_terminal(tmp_path: Path) -> None:
    shown = await talk(stream(events(":cat: [bold] \x1b]0;mine\x07 \u2028 \x9b2J")), tmp_path, "Hi")
    assert ":cat: [bold] ]0;mine" in shown
    assert not {"\x1b", "\x07", "\x9b"} & set(shown)


@pytest.mark.parametrize(
    ("script", "says"),
    [
        (stream(events("half an", done=False), cut=True), ["half an", "broke off"]),
        (reply(b'{"error": {"message": "slow [/] down"}}', status="429 No"), ["slow [/] down"]),
        (stream([b"data: nonsense\n\n"]), ["expected a chunk of a chat completion"]),
    ],
    ids=["broken off", "refused", "not a completion"],
)
async def test_an_error_is_shown_and_the_chat_continues(
    script: Script, says: list[str], tmp_path: Path
) -> None:
    shown = await talk(script, tmp_path, "Hi", "Hi again")
    assert [shown.count(words) for words in says] == [2] * len(says)
    assert "rate (" not in shown


def test_a_talk_on_a_terminal_streams_and_asks_for_a_rating(burnish: Burnish) -> None:
    with on_terminal("chat", "--url", burnish.url, "--max-tokens", "16") as (screen, process):
        screen.until("you ›")
        screen.type("Hello\n")
        assert "model ›" in screen.until("skips):")
        screen.type("g nice\n")
        screen.until("rated")
        screen.until("you ›")
        screen.type("\x04")
        assert process.wait(30) == 0
    assert ratings(burnish.url, 1)[0]["comment"] == "nice"


def test_ctrl_c_cuts_an_answer_short_and_the_talk_goes_on(burnish: Burnish) -> None:
    with on_terminal("chat", "--url", burnish.url) as (screen, process):
        screen.until("you ›")
        screen.type("Write a very long story about the sea, with many chapters.\n")
        screen.until("model ›")
        screen.until("e")  # something has been said
        process.send_signal(signal.SIGINT)
        screen.until("(stopped)")
        screen.until("skips):")
        screen.type("b too long\n")
        screen.until("you ›")
        screen.type("/quit\n")
        assert process.wait(30) == 0
    rated = ratings(burnish.url, 1)[0]
    assert rated["comment"] == "too long"
    cut = httpx.get(burnish.url + f"/burnish/completions/{rated['completion_id']}").json()
    assert cut["outcome"] == "cancelled"
