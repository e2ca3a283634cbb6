"""What clients make of an exchange with ``/rl``: nothing of it reaches the model, and the conversation goes on.

Gemini CLI drops typed commands when it resumes, and joins neighbouring answers. Other clients join turns in one text or
in one list of parts, drop an answer, or edit one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from tests.support.dialects import DIALECTS, Answer, Dialect, Json, Said, assistant, system, user
from tests.support.inprocess import behind, logged, ratings
from tests.support.upstream import Received, Script, reply

FORMATS = {name: dialect for name, dialect in DIALECTS.items() if dialect.history}
FIRST = "Rivers carry water from the mountains to the sea, and they never tire of it."
MEMBERS = ("messages", "input", "contents")
STAMP = "[Sat 2026-11-21 03:19 UTC] "
RL = "/rl good"
QUESTION = user("What do rivers do?")
Change = Callable[[Json], Json]


def counting(dialect: Dialect) -> Script:
    """Return the script of a model that answers each question in other words."""
    asked = 0

    async def script(request: Received, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        text = FIRST if not asked else f"Answer {asked}."
        asked += 1
        await reply(orjson.dumps(dialect.answer(Answer(text), asked)))(request, writer)

    return script


def joined(body: Json, between: str | None) -> Json:
    """Join neighbouring messages of the assistant: into one list of parts, or into one text."""
    name = next(each for each in MEMBERS if each in body)
    found: list[Json] = []
    for item in body[name]:
        if not (found and is_assistants(item) and is_assistants(found[-1])):
            found.append(item)
            continue
        content = [*parts_of(found[-1]), *parts_of(item)]
        if between is not None:
            content = [{**content[0], "text": between.join(part["text"] for part in content)}]
        key = "parts" if "parts" in item else "content"
        plain = isinstance(item[key], str) and between is not None
        found[-1] = {**found[-1], key: content[0]["text"] if plain else content}
    return {**body, name: found}


def is_assistants(item: Json) -> bool:
    return item.get("role") in ("assistant", "model")


def parts_of(item: Json) -> list[Json]:
    content: Any = item.get("parts", item.get("content"))
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content)


def unchanged(body: Json) -> Json:
    return body


def shapes(first: str, ours: str) -> Iterator[tuple[str, tuple[Said, ...], Change]]:
    """Yield what clients send before the next message: the conversation, and what they make of the request."""
    before, rated = (QUESTION, assistant(first)), assistant(ours)
    dropped = (*before, rated)
    yield "kept", (*before, user(RL), rated), unchanged
    yield "command dropped", dropped, unchanged
    yield "command dropped, two parts", dropped, lambda body: joined(body, None)
    yield "command dropped, one text", dropped, lambda body: joined(body, "\n\n")
    yield "command dropped, one text, next line", dropped, lambda body: joined(body, "\n")
    yield "command dropped, one text, nothing between", dropped, lambda body: joined(body, "")
    yield "command dropped, twice", (*dropped, rated), lambda body: joined(body, None)
    yield "command dropped, twice in one text", (*dropped, rated), lambda body: joined(body, "\n\n")
    yield "answer dropped", (*before, user(RL)), unchanged
    yield "answer dropped, before a system message", (*before, user(RL), system("Be brief.")), unchanged
    yield "answer edited", (*before, user(RL), assistant(ours + " 👍")), unchanged
    yield "stamped by OpenClaw", (*before, user(STAMP + RL), rated), unchanged
    yield "stamped by Copilot CLI", (*before, dated(RL), rated), unchanged
    yield "a part beside it", (*before, user("<context>x</context>", RL), rated), unchanged
    yield "an empty part beside it", (*before, user("", RL), rated), unchanged
    yield "white space around it", (*before, assistant(f"\n{ours}\n")), unchanged


def fits(dialect: Dialect, said: tuple[Said, ...], name: str) -> bool:
    plain = all(each.plain for each in said)
    return (plain and "two parts" not in name and name != "command dropped, twice") or dialect.parts


async def ask(client: httpx.AsyncClient, dialect: Dialect, body: Json) -> str:
    answer = await client.post(dialect.path, json=body)
    assert answer.status_code == 200, answer.text
    return dialect.says(answer.json())


@pytest.mark.parametrize("dialect", FORMATS.values(), ids=FORMATS)
async def test_nothing_of_an_exchange_reaches_the_model(dialect: Dialect, tmp_path: Path) -> None:
    async with behind(tmp_path, counting(dialect)) as (client, server):
        first = await ask(client, dialect, dialect.body((QUESTION,)))
        ours = await ask(client, dialect, dialect.body((QUESTION, assistant(first), user(RL))))
        assert ours.startswith("burnish: rated good")
        for number, (name, said, change) in enumerate(shapes(first, ours)):
            if not fits(dialect, said, name):
                continue
            following = user(f"Question {number}?")
            answer = await ask(client, dialect, change(dialect.body((*said, following))))
            sent = server.requests[-1].body.decode()
            assert ("burnish:" in sent, "/rl" in sent) == (False, False), (name, sent)
            assert FIRST in sent and following.text in sent, name
            # The same client rates this answer, and the one before once more.
            rated = await ask(client, dialect, change(dialect.body((*said, user("/rl bad")))))
            assert rated.startswith("burnish: rated bad") and FIRST[:20] in rated, (name, rated)
            later = (*said, following, assistant(answer), user("/rl 4"))
            rated = await ask(client, dialect, change(dialect.body(later)))
            assert rated.startswith("burnish: rated 4 of 5") and answer in rated, (name, rated)
            await ask(client, dialect, dialect.body((QUESTION, assistant(first), user(RL))))
        records = await logged(client)
        assert len({record["conversation_id"] for record in records}) == 1
        assert [record["rating"] for record in records] == [1.0, *[0.5] * (len(records) - 1)]
        assert all(record["continues"] == records[0]["id"] for record in records[1:])


@pytest.mark.parametrize("dialect", FORMATS.values(), ids=FORMATS)
@pytest.mark.parametrize("command", ["status", "help", "oops", "undo", "fix", "train"])
async def test_our_answers_are_known_without_their_commands(dialect: Dialect, command: str, tmp_path: Path):
    async with behind(tmp_path, counting(dialect)) as (client, server):
        first = await ask(client, dialect, dialect.body((QUESTION,)))
        ours = await ask(client, dialect, dialect.body((QUESTION, assistant(first), user(f"/rl {command}"))))
        changes: list[Change] = [unchanged]
        changes += [partial(joined, between=between) for between in ("\n\n", "", None)]
        for change in changes:
            for answer in (first, "Edited by the client."):
                said = (QUESTION, assistant(answer), assistant(ours), user("Why?"))
                await ask(client, dialect, change(dialect.body(said)))
                sent = server.requests[-1].body.decode()
                assert ("burnish:" in sent, answer in sent) == (False, True)
        assert len({record["conversation_id"] for record in await logged(client)}) == 1


@pytest.mark.parametrize("name", [name for name, dialect in FORMATS.items() if dialect.parts])
async def test_an_answer_of_burnish_between_two_of_the_model_goes_too(name: str, tmp_path: Path) -> None:
    """As where a client also drops what was typed after it."""
    dialect = FORMATS[name]
    async with behind(tmp_path, counting(dialect)) as (client, server):
        said = (QUESTION, assistant("Paris."), assistant(RATED), assistant("Madrid."), user("And?"))
        await ask(client, dialect, joined(dialect.body(said), None))
        whole = (QUESTION, assistant("Paris."), assistant("Madrid."), user("And?"))
        assert server.requests[-1].json() == joined(dialect.body(whole), None)


RATED = "burnish: rated good – “Paris.” (/rl undo takes it back)"
QUOTING: dict[str, str] = {
    "in a sentence": f"You get {RATED}",
    "introduced": f"If you rate it, you get:\n\n{RATED}",
    "introduced in Chinese": f"你会看到：\n{RATED}",
    "with more behind it": f"Paris.\n\n{RATED}\n\nSo the rating is stored.",
    "with more on its line": f"Paris.\n\n{RATED} is what you get.",
    "with more on the quoting line": "Paris.\n\nburnish: rated good – “Paris.” means that it is stored.",
    "in code": f"Paris.\n\n```\n{RATED}\n```",
    "in quotes": f"Paris.\n\n“{RATED}”",
    "as a citation": f"Paris.\n\n> {RATED}",
    "indented": f"Rome.\n\n    {RATED}",
    "in a list": f"Paris.\n\n- {RATED}",
    "of another answer, in line": f"Rome. {RATED}",
    "its name": "burnish: a proxy that learns",
    "its name at the end": "It is called\n\nburnish: a proxy that learns",
    "an unknown form": "Paris.\n\nburnish: rated fine – “Paris.” (/rl undo takes it back)",
    "a half": "Paris.\n\nburnish: rated good",
}


@pytest.mark.parametrize("dialect", FORMATS.values(), ids=FORMATS)
async def test_a_models_own_words_about_burnish_stay(dialect: Dialect, tmp_path: Path) -> None:
    async with behind(tmp_path, counting(dialect)) as (client, server):
        for name, text in QUOTING.items():
            for said in (
                (assistant(text),),
                (assistant("Paris."), user("And?"), assistant(text)),
                (user(text),),
                (assistant("Paris."), user(RATED), assistant("So?")),
            ):
                body = dialect.body((QUESTION, *said, user("Go on.")))
                await client.post(dialect.path, content=(sent := orjson.dumps(body)))
                assert server.requests[-1].body == sent, name


async def test_a_command_is_only_cut_without_its_answer_if_it_was_given(tmp_path: Path) -> None:
    """Nobody else's rating counts, nor one of another answer: the message may be a file."""
    dialect = DIALECTS["chat"]
    async with behind(tmp_path, counting(dialect)) as (client, server):
        first = await ask(client, dialect, dialect.body((QUESTION,)))
        body = dialect.body((QUESTION, assistant(first), user(RL), user("Go on.")))
        await ask(client, dialect, body)
        assert server.requests[-1].json() == body
        rated: dict[str, Any] = {"last": True, "rating": "good"}
        await client.post("/v1/feedback", json=rated)
        rate = dialect.body((QUESTION, assistant(first), user(RL)))
        await client.post(dialect.path, json=rate, headers={"x-burnish-user": "bob"})
        await ask(client, dialect, body)
        assert server.requests[-1].json() == body
        await ask(client, dialect, rate)
        assert {each["rater"] for each in await ratings(client)} == {"local", "bob"}
        await ask(client, dialect, body)
        assert server.requests[-1].json() == dialect.body((QUESTION, assistant(first), user("Go on.")))


AT_COPILOT = "What do rivers do?|/rl good|And lakes?|/rl bad too dull|/rl undo|And seas?|/rl 4"
AT_GEMINI = "What do rivers do?|/rl good|/rl bad|And lakes?|/rl good|And seas?|/rl 4"


def dated(text: str) -> Said:
    return user(f"<current_datetime>2026-11-21T03:19:{len(text):02}.000Z</current_datetime>\n\n{text}")


@pytest.mark.parametrize("dialect", [FORMATS["chat"], FORMATS["messages"]], ids=["chat", "messages"])
async def test_a_session_as_copilot_cli_sends_it(dialect: Dialect, tmp_path: Path) -> None:
    """GitHub Copilot CLI 1.0.102 writes a date before everything that is typed."""
    said: tuple[Said, ...] = ()
    async with behind(tmp_path, counting(dialect)) as (client, server):
        for text in AT_COPILOT.split("|"):
            said = (*said, dated(text))
            answer = await ask(client, dialect, dialect.body(said, first="You are the GitHub Copilot CLI."))
            assert answer.startswith("burnish: ") == text.startswith("/rl"), text
            said = (*said, assistant(answer))
        records = await logged(client)
    assert [record["rating"] for record in records] == [1.0, None, 0.5]
    assert len({record["conversation_id"] for record in records}) == 1
    sent = server.requests[-1].body.decode()
    assert ("/rl" in sent, "burnish:" in sent, sent.count("<current_datetime>")) == (False, False, 3)


async def test_a_session_as_gemini_cli_resumes_it(tmp_path: Path) -> None:
    """Gemini CLI 0.61.0 drops lines that begin with a slash on ``--resume``, and joins the model's turns."""
    dialect = FORMATS["gemini"]
    context = user("<session_context>\nThis is the Gemini CLI.\n</session_context>")
    said: tuple[Said, ...] = (context,)
    async with behind(tmp_path, counting(dialect)) as (client, server):
        for text in AT_GEMINI.split("|"):
            resumed = tuple(each for each in said if not each.text.startswith("/rl"))
            asked = joined(dialect.body((*resumed, user(text))), None)
            answer = await ask(client, dialect, asked)
            assert answer.startswith("burnish: rated") == text.startswith("/rl"), (text, answer)
            said = (*said, user(text), assistant(answer))
        records = await logged(client)
    assert [record["rating"] for record in records] == [-1.0, 1.0, 0.5]
    assert len({record["conversation_id"] for record in records}) == 1
    contents = server.requests[-1].json()["contents"][1:]
    turns = ("What do rivers do?", FIRST, "And lakes?", "Answer 1.", "And seas?")
    assert [each["parts"] for each in contents] == [[{"text": text}] for text in turns]
