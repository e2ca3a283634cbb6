"""The watch for a client that leaves, before and after its body is read."""

from __future__ import annotations

import asyncio

import pytest
from starlette.types import Message

from burnish.proxy.relay.client import Client


@pytest.mark.parametrize("leaves", [True, False])
async def test_a_receive_that_waits_again_and_again_is_run_to_its_end(leaves: bool) -> None:
    steps = [asyncio.Event() for _ in range(3)]
    waiting: asyncio.Queue[int] = asyncio.Queue()
    closed = asyncio.Event()

    async def receive() -> Message:
        try:
            for number, step in enumerate(steps):
                waiting.put_nowait(number)
                await step.wait()
            return {"type": "http.disconnect"}
        finally:
            closed.set()

    went_on = False
    async with asyncio.timeout(5):
        async with Client(receive) as client:
            for number, step in enumerate(steps):
                assert await waiting.get() == number
                if leaves or number < 2:
                    step.set()
            if leaves:
                await asyncio.Event().wait()
            went_on = True
        await closed.wait()
    assert (client.gone, went_on) == (leaves, not leaves)


async def test_more_of_a_body_is_not_taken_for_a_disconnect() -> None:
    messages = [{"type": "http.request"}, {"type": "http.request"}, {"type": "http.disconnect"}]

    async def receive() -> Message:
        return messages.pop(0)

    async with asyncio.timeout(5), Client(receive) as client:
        await asyncio.Event().wait()
    assert client.gone
    assert not messages
