"""Exchanges with a key or a token are flagged once and for all that follows; their text stays as it is."""

from __future__ import annotations

import asyncio
import random
import string
import time
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from burnish.proxy.log import Log
from burnish.proxy.log.credentials import KINDS, holds_credential, without_credentials
from burnish.proxy.log.faults import Rules
from burnish.proxy.log.tally import RatingTally
from tests.proxy.log.exchanges import all_rated, assistant, capture, rate, user
from tests.support.inprocess import behind, logged
from tests.support.upstream import completion, reply

CHANCE = random.Random(20)


def some(length: int, alphabet: str = string.ascii_letters + string.digits) -> str:
    """Return random characters, two digits among them."""
    return "".join(CHANCE.choices(alphabet, k=length - 2)) + "47"


UPPER = string.ascii_uppercase + string.digits
TOKEN = "gh" + "p_" + some(36)
# Put together here, so that no scanner of repositories takes them for real ones.
KEYS = {
    "OpenAI": "sk-" + some(48), "OpenAI project": "sk-" + "proj-" + some(80) + "_" + some(40),
    "Anthropic": "sk-" + "ant-api03-" + some(60) + "-" + some(30),
    "OpenRouter": "sk-" + "or-v1-" + some(64, "0123456789abcdef"), "DeepSeek": "sk-" + some(32, "0123456789abcdef"),
    "Groq": "gs" + "k_" + some(52), "xAI": "xa" + "i-" + some(80), "Hugging Face": "h" + "f_" + some(34),
    "Google": "AI" + "za" + some(35), "Google OAuth": "GOC" + "SPX-" + some(28), "AWS": "AK" + "IA" + some(16, UPPER),
    "AWS, for a time": "AS" + "IA" + some(16, UPPER), "GitHub": TOKEN, "GitHub OAuth": "gh" + "o_" + some(36),
    "GitHub, of a server": "gh" + "s_" + some(36), "GitHub, of a user": "gh" + "u_" + some(36),
    "GitHub, fine-grained": "github" + "_pat_" + some(22) + "_" + some(59), "GitLab": "gl" + "pat-" + some(20),
    "Slack": "xo" + "xb-" + some(12, string.digits) + "-" + some(24),
    "Slack webhook": f"https://hooks.slack.com/services/{'T' + some(9)}/{'B' + some(9)}/{some(24)}",
    "Stripe": "sk" + "_live_" + some(24), "npm": "np" + "m_" + some(36),
    "PyPI": "pypi-" + "AgEIcHlwaS5vcmc" + some(80), "SendGrid": "S" + "G." + some(22) + "." + some(43),
    "Telegram": "1234567890" + ":AA" + some(33),
    "JSON web token": "ey" + "J" + some(30) + ".ey" + "J" + some(80) + "." + some(43),
    "private key": "-----BEGIN RSA PRIVATE " + "KEY-----\n" + some(64) + "\n" + some(64),
    "authorization": "curl -H 'Authorization: Bearer " + some(40) + "'",
}  # fmt: skip


def as_stored(text: str) -> Iterator[bytes]:
    """Yield messages that hold a text, in the ways in which one may."""
    yield orjson.dumps(user(text))
    yield orjson.dumps(user(f"Here it is:\n{text}\nUse it."))
    yield orjson.dumps(user(f"API_KEY={text}, \"key\": '{text}'"))
    arguments = orjson.dumps({"command": f"echo\n{text}"}).decode()
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}
    yield orjson.dumps(assistant("") | {"tool_calls": [call]})


@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS)
def test_each_kind_of_key_is_found_wherever_it_stands_and_taken_out_of_a_text(key: str) -> None:
    assert all(map(holds_credential, as_stored(key)))
    rest = without_credentials(f"before {key} and {key}")
    assert rest.startswith("before ") and key[-8:] not in rest
    assert not holds_credential(rest.encode())


def test_every_kind_has_an_example() -> None:
    marks = {each.mark for each in KINDS}
    assert {mark for mark in marks if any(mark.decode() in key for key in KEYS.values())} == marks


@pytest.mark.parametrize(
    "text",
    [
        "The task-force's risk-assessment-of-the-company-in-general-2024 and desk-research-for-beginners-12345678.",
        "<div class='sk-toggleable__content-fitted-1 sk-estimator-doc-link-2'>",
        "sk-xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx1, sk-...47ab, sk-your-api-key-goes-here, sk-1234",
        "AKIAIOSFODNN7" + "EXAMPLE is in the documentation of AWS",
        "Authorization: Bearer $OPENAI_API_KEY, Authorization: Bearer YOUR_API_KEY_GOES_HERE_PLEASE",
        "the bearer of the letter 12345678901234567890123456",
        "550e8400-e29b-41d4-a716-446655440000 da39a3ee5e6b4b0d3255bfef95601890afd80709",
        "data:image/png;base64," + some(4000),
        "if '-----BEGIN PRIVATE KEY-----' in text: raise WhateverYouLikeToRaiseHere123",
        "std::vector<AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA>, 12345678:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
        "eyJhbGciOiJIUzI1NiJ9 is the head of a JSON web token, and eyJzdWIiOiIxMjM0NTY3ODkwIn0 a body",
        "hf_hub_download_and_more_of_the_names_1, npm_config_registry_of_the_company_2, github_pat_",
    ],
)
def test_what_only_looks_similar_is_left_alone(text: str) -> None:
    assert not any(map(holds_credential, as_stored(text)))


@pytest.mark.parametrize("text", [*(each.mark for each in KINDS), b"".join(each.mark for each in KINDS)])
def test_the_search_takes_time_by_the_length_only(text: bytes) -> None:
    long = text * (1_000_000 // len(text)) + b"w" * 20
    began = time.thread_time()
    assert not holds_credential(long)
    assert time.thread_time() - began < 5, "a quadratic search would take minutes"


async def test_an_exchange_is_flagged_with_all_that_follows_from_it_and_logged_unaltered(tmp_path: Path):
    said = f"My token is {TOKEN}."
    definition = {"type": "mcp", "server_url": "https://x.example", "headers": {"authorization": TOKEN}}
    conversations = [
        {"messages": [user("What is tea?")]},
        {"messages": [user(said)]},
        {"messages": [user(said), assistant("Keep it secret."), user("And tea?")]},
        {"messages": [user("What is coffee?")], "tools": [definition]},
        {"messages": [user("What is milk?")]},
    ]
    async with behind(tmp_path, reply(completion("Keep it secret."))) as (http, server):
        for each in conversations:
            assert (await http.post("/v1/chat/completions", json={"model": "m"} | each)).status_code == 200
        found = await logged(http)
    assert [each["holds_credential"] for each in found] == [False, True, True, True, False]
    assert found[1]["messages"] == [user(said)]
    assert server.requests[1].json()["messages"] == [user(said)]


async def test_it_cannot_be_learnt_from_unless_that_is_switched_off(log: Log) -> None:
    clean = capture(log, [user("What is tea?")])
    asked = capture(log, [user(f"My token is {TOKEN}.")])
    answered = capture(log, [user("Make one up.")], f"{TOKEN}, for example.")
    corrected, compared = capture(log, [user("A call?")]), capture(log, [user("Make one up.")], "No.")
    for each in (clean, asked, answered):
        await rate(log, each, 1.0)
    await rate(log, corrected, -1.0, correction=f"curl -u me:{TOKEN} https://x.example")
    await rate(log, compared, 1.0, preferred_over=answered)
    faults = dict.fromkeys((asked, answered, corrected), "credential") | {clean: None, compared: None}
    for scrub in (True, False):
        found = {each.completion.id: each for each in await all_rated(log, scrub=scrub)}
        expected = faults if scrub else dict.fromkeys(faults)
        assert {name: each.fault for name, each in found.items()} == expected
        assert (found[compared].worse == ()) is scrub
        counts = await log.rating_counts(RatingTally(Rules(scrub=scrub)), (), "")
        assert counts.left_out == ({"credential": 3} if scrub else {})
        assert counts.ready.pairs == (0 if scrub else 2)
        prompts = {each.id for each in await log.recent_prompts(9, scrub=scrub)}
        assert prompts == ({clean, corrected, compared} if scrub else {clean, asked, corrected, compared})


async def test_a_history_that_comes_again_is_searched_once(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[bytes] = []

    def searching(text: bytes) -> bool:
        searched.append(text)
        return holds_credential(text)

    monkeypatch.setattr("burnish.proxy.log.tree.holds_credential", searching)
    history = [user(f"A clock: {time.time()}")]
    for turn in range(5):
        capture(log, history, f"Answer {turn} of {history[0]}.")
        history = [*history, assistant(f"Answer {turn} of {history[0]}."), user(f"Question {turn}?")]
        history[0] = user(f"A clock: {time.time()}, {turn}")  # so that no path is known
    await log.counts()
    await asyncio.sleep(0)
    messages = [text for text in searched if b'"role"' in text]
    assert len(messages) == len(set(messages))


def test_a_text_without_a_key_stays_as_it_is() -> None:
    assert without_credentials("what is sk-learn? \udcff") == "what is sk-learn? \udcff"
