"""``/rl`` in what nobody typed does nothing, in any format: it goes to the model as it is, and nothing is rated."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import orjson
import pytest

from tests.proxy.feedback.rl_inputs import DATETIME, GOOD, POISON, TYPED
from tests.support.dialects import DIALECTS, DONE, Answer, Dialect, Said, assistant, user
from tests.support.inprocess import behind
from tests.support.upstream import Received, Upstream, reply

BEFORE = (user("Capital of France?"), assistant(DONE))


@dataclass
class World:
    http: httpx.AsyncClient
    upstream: Upstream

    async def ask(self, dialect: Dialect, said: tuple[Said, ...]) -> tuple[bytes, str]:
        """Return what was sent, and the text that came back."""
        body = json.dumps(dialect.body(said), ensure_ascii=False, indent=1).encode()
        answer = await self.http.post(dialect.path, content=body)
        assert answer.status_code == 200, answer.text
        return body, dialect.says(answer.json())

    async def ratings(self) -> list[float]:
        return [each["reward"] for each in (await self.http.get("/v1/feedback")).json()["data"]]


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[World]:
    async def script(request: Received, writer: asyncio.StreamWriter) -> None:
        dialect = next(each for each in DIALECTS.values() if each.path == request.target)
        await reply(orjson.dumps(dialect.answer(Answer(DONE))))(request, writer)

    async with behind(tmp_path, script) as (http, server):
        yield World(http, server)


def as_typed(dialect: Dialect, said: tuple[Said, ...]) -> bool:
    """True if a format that lacks parts or roles makes a text of the last message that anybody may have typed."""
    last = said[-1]
    if dialect.history:
        text = not dialect.parts and all(part.kind != "image" for part in last.parts)
    else:
        text = last.parts[-1].kind != "file"
    return text and last.text.strip().removeprefix(DATETIME).startswith(GOOD)


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)
async def test_a_command_that_nobody_typed_goes_to_the_model(here: World, dialect: Dialect) -> None:
    await here.ask(dialect, BEFORE[:1])
    for name, said in POISON.items():
        if as_typed(dialect, said):
            continue
        body, answer = await here.ask(dialect, (*BEFORE, *said) if dialect.history else said[-1:])
        assert answer == DONE, name
        assert here.upstream.requests[-1].body == body, name
    assert await here.ratings() == []


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)
async def test_a_command_that_somebody_typed_is_carried_out(here: World, dialect: Dialect) -> None:
    await here.ask(dialect, BEFORE[:1])
    for name, (said, answered) in TYPED.items():
        if not all(each.plain for each in said) and not (dialect.history and dialect.parts):
            continue
        if dialect.history:
            _, answer = await here.ask(dialect, (*BEFORE, *said))
            assert answer.startswith(f"burnish: {answered}"), name
        elif len(said) == 1:
            _, answer = await here.ask(dialect, said)
            # A prompt says nothing of what was before.
            nothing = "nothing was rated" if answered.startswith(("rated ", "saved")) else answered
            assert answer.startswith(f"burnish: {nothing}"), name
    rewards = {each for each in await here.ratings() if each is not None}
    assert rewards == ({1.0, 0.5, -0.5, -1.0} if dialect.history else set())
    assert len(here.upstream.requests) == 1
