from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from tests.support import chat_wire
from tests.support.burnish import Burnish
from tests.support.inprocess import serving
from tests.support.patience import within
from tests.support.program import NOBODY, call, run
from tests.support.upstream import Script, Upstream, events, in_turn, reply, stream, upstream


def ratings(url: str, count: int) -> list[dict[str, Any]]:
    answer = httpx.get(url + f"/v1/feedback?limit={count}", timeout=within(60))
    found: list[dict[str, Any]] = answer.json()["data"]
    return found


def chat(url: str, lines: Sequence[str], *options: str) -> str:
    """Type these lines; return what is printed. Answers are cut: the small model may ramble for minutes."""
    done = call("chat", "--max-tokens", "16", *options, url=url, stdin="\n".join(lines) + "\n")
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_talk_with_ratings_from_a_file(burnish: Burnish) -> None:
    lines = ["Say one word.", "b too dull", "/undo", "And another.", "4", "/quit"]
    printed = chat(burnish.url, lines)
    assert "rated bad with your comment “too dull”" in printed
    assert "rated 4 of 5 (Good)" in printed
    last, first = ratings(burnish.url, 2)
    assert (last["reward"], last["undone_at"]) == (0.5, None)
    assert (first["reward"], first["comment"]) == (-1.0, "too dull")
    assert first["undone_at"] is not None


def test_a_small_model_is_asked_for_answers_that_end(burnish: Burnish) -> None:
    for options, tokens in ((), 512), (("--max-tokens", "9"), 9):
        done = call("chat", "--rate", "off", *options, url=burnish.url, stdin="Name one colour.\n/quit\n")
        assert f"an answer has at most {tokens} tokens (--max-tokens)" in done.stdout
        latest = httpx.get(f"{burnish.url}/burnish/completions?limit=1", timeout=within(60)).json()["data"][0]
        whole = httpx.get(f"{burnish.url}/burnish/completions/{latest['id']}", timeout=within(60)).json()
        assert whole["params"]["max_tokens"] == tokens


def test_a_digit_off_the_scale_is_neither_a_rating_nor_a_message(burnish: Burnish) -> None:
    printed = chat(burnish.url, ["Say one word.", "0", "6", "1", "/quit"])
    assert "0 isn't a rating: 1 Terrible, 2 Poor, 3 Okay, 4 Good, 5 Excellent." in " ".join(printed.split())
    assert "6 isn't a rating" in printed
    assert printed.count("model ›") == 1
    assert ratings(burnish.url, 1)[0]["reward"] == -1.0


def test_a_comment_alone_an_undo_and_a_second_thought(burnish: Burnish) -> None:
    lines = ["Say one word.", "c", "", "g", "Say another.", "u", "c", "[/] too dull", "/bye"]
    printed = chat(burnish.url, lines)
    assert "no comment was saved" in printed
    assert "comment saved: “[/] too dull”" in printed
    comment, good = ratings(burnish.url, 2)
    assert (comment["reward"], comment["comment"]) == (None, "[/] too dull")
    assert good["reward"] == 1.0
    assert good["undone_at"] is not None


def test_the_conversation_is_kept_until_a_new_one_is_wanted(burnish: Burnish) -> None:
    lines = ["Say one word.", "", "Say another.", "", "/new", "Say a third."]
    chat(burnish.url, lines, "--system", "Be brief")
    with httpx.Client(base_url=burnish.url, timeout=within(60)) as client:
        third, second, first = client.get("/burnish/completions?limit=3").json()["data"]
        whole = client.get(f"/burnish/completions/{second['id']}").json()
    assert first["conversation_id"] == second["conversation_id"] != third["conversation_id"]
    assert [message["role"] for message in whole["messages"]] == ["system", "user", "assistant", "user"]
    assert whole["params"]["max_tokens"] == 16


def test_burnish_answers_its_own_commands_and_they_are_not_rated(burnish: Burnish) -> None:
    printed = chat(burnish.url, ["Say one word.", "", "/rl good", "/rl status"])
    assert printed.count("rate (") == 1
    assert "burnish › rated good" in printed
    assert "burnish › /rl status" in printed
    assert printed.count("model ›") == 1
    assert ratings(burnish.url, 1)[0]["target"] == "rl"


async def talk(script: Script, tmp_path: Path, *lines: str, options: Sequence[str] = (), **env: str) -> Talk:
    """Chat with a scripted upstream behind a burnish of its own."""
    async with upstream(script) as server, serving(tmp_path, upstream=server.url, model="mock") as (url, _):
        typed = "".join(line + "\n" for line in lines)
        done = await asyncio.to_thread(run, "chat", *options, url=url, stdin=typed, env=env)
        async with httpx.AsyncClient(base_url=url, timeout=within(60)) as client:
            logged = (await client.get("/burnish/completions")).json()["data"][::-1]
            given = (await client.get("/v1/feedback")).json()["data"][::-1]
        return Talk(done, server, logged, given)


class Talk(NamedTuple):
    done: subprocess.CompletedProcess[str]
    upstream: Upstream
    logged: list[dict[str, Any]]
    ratings: list[dict[str, Any]]

    @property
    def shown(self) -> str:
        assert self.done.returncode == 0, self.done.stderr
        return self.done.stdout

    @property
    def asked(self) -> list[str]:
        """The last message of each request that reached the upstream."""
        requests = [request.json() for request in self.upstream.requests if request.body]
        return [request["messages"][-1]["content"] for request in requests]


async def test_what_a_model_says_is_shown_as_it_is_and_cannot_steer_the_terminal(tmp_path: Path) -> None:
    shown = (await talk(stream(events(":cat: [bold] \x1b]0;mine\x07 \u2028 \x9b2J")), tmp_path, "Hi")).shown
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
async def test_an_error_is_shown_and_chat_goes_on(script: Script, says: list[str], tmp_path: Path) -> None:
    shown = (await talk(script, tmp_path, "Hi", "Hi again")).shown
    assert [shown.count(words) for words in says] == [2] * len(says)
    assert "rate (" not in shown


async def test_only_messages_reach_the_model_and_the_log(tmp_path: Path) -> None:
    lines = ["/help", "/nonsense", "/rlx", "Hi", "/exit now", "", "//", " /etc/hosts?", "", "/BYE", "never"]
    found = await talk(stream(events("Hello!")), tmp_path, *lines)
    assert found.asked == ["Hi", "/etc/hosts?"]
    assert [each["prompt"] for each in found.logged] == found.asked
    for name in ("/nonsense", "/rlx", "/exit now", "//"):
        assert f"there is no command {name}, so nothing was sent" in found.shown
    assert found.shown.count("/undo  take back your last rating") == 5
    assert "put a space before it" in found.shown


async def test_a_message_instead_of_a_rating_is_the_next_message(tmp_path: Path) -> None:
    lines = ["Hi", "bad weather today", "4 more", "good", "what?", "G", "b"]
    found = await talk(stream(events("Hello!")), tmp_path, *lines)
    assert found.asked == ["Hi", "bad weather today", "4 more", "what?", "G"]
    assert "a rating with words is: b too long" in found.shown
    assert [each["reward"] for each in found.ratings] == [1.0, -1.0]
    assert [each["completion_id"] for each in found.ratings] == [found.logged[n]["id"] for n in (2, 4)]


@pytest.mark.parametrize(
    ("script", "says"),
    [
        (stream(events("Hello!")), "rated bad; training is off: burnish status; words teach more: b too"),
        (stream(events("Hel lo", done=False)), "but nothing will be learnt from it: the answer was cut off"),
    ],
    ids=["usable", "unusable"],
)
async def test_a_rating_says_what_it_will_do(script: Script, says: str, tmp_path: Path) -> None:
    assert says in (await talk(script, tmp_path, "Hi", "b")).shown


async def test_ratings_can_be_switched_off(tmp_path: Path) -> None:
    found = await talk(stream(events("Hello!")), tmp_path, "Hi", "b", options=["--rate", "off"])
    assert found.asked == ["Hi", "b"]
    assert (found.ratings, "rate" in found.shown) == ([], False)


async def test_reasoning_is_shown_and_is_no_part_of_the_conversation(tmp_path: Path) -> None:
    message = {"reasoning_content": "Let me see.", "content": "Hello!"}
    found = await talk(stream(chat_wire.chunks(chat_wire.whole(message))), tmp_path, "Hi", "", "Again")
    assert "thinking › Let me see.\nmodel › Hello!\n" in found.shown
    history = found.upstream.requests[-1].json()["messages"][1:-1]
    assert history == [{"role": "assistant", "content": "Hello!"}]


async def test_the_other_name_of_reasoning_an_empty_and_a_cut_answer(tmp_path: Path) -> None:
    answers = [
        [chat_wire.chunk({"reasoning": "Hm."}), chat_wire.chunk({}, "stop"), chat_wire.DONE],
        [chat_wire.chunk({"content": "Once upon"}), chat_wire.chunk({}, "length"), chat_wire.DONE],
    ]
    shown = (await talk(in_turn(*map(stream, answers)), tmp_path, "Hi", "Go on")).shown
    assert "thinking › Hm.\n(an empty answer)\n" in shown
    assert "Once upon\n(cut off at the longest length: see --max-tokens)\n" in shown


async def test_sampling_comes_from_flags_then_the_environment_then_the_file(tmp_path: Path) -> None:
    file = tmp_path / "burnish.toml"
    file.write_text("[chat]\ntemperature = 0.1\ntop_p = 0.2\ntop_k = 3\nmax_tokens = 40\n")
    env = {"BURNISH_CONFIG": str(file), "BURNISH_CHAT__TOP_P": "0.5", "BURNISH_CHAT__TOP_K": "6"}
    found = await talk(stream(events("Hello!")), tmp_path, "Hi", options=["--top-k", "7"], **env)
    sent = found.upstream.requests[-1].json()
    names = ("temperature", "top_p", "top_k", "max_tokens")
    assert [sent[name] for name in names] == [0.1, 0.5, 7, 40]
    without = await talk(stream(events("Hello!")), tmp_path, "Hi")
    assert not set(names) & set(without.upstream.requests[-1].json()), "the engine's defaults count"
    assert "tokens (--max-tokens)" not in without.shown


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("--temperature", "2.5", "chat.temperature"),
        ("--temperature", "nan", "chat.temperature"),
        ("--top-p", "0", "chat.top_p"),
        ("--top-k", "0", "chat.top_k"),
        ("--max-tokens", "0", "chat.max_tokens"),
        ("--max-tokens", "many", "max-tokens"),
        ("--rate", "often", "'line', 'key' or 'off'"),
    ],
)
def test_a_wrong_option_is_refused_before_anything_is_asked(option: str, value: str, says: str) -> None:
    done = call("chat", option, value, url=NOBODY)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr
