"""A step that fails fails the requests that asked for it, and no others."""

from __future__ import annotations

import asyncio
import logging
from typing import ClassVar

import pytest

from burnish.proxy.http.errors import Conflict, Unavailable
from burnish.proxy.relay.steps import Exchange, Outgoing, Step, act, acting


class Added(Step):
    async def with_target(self, outgoing: Outgoing) -> None:
        raise ValueError("a fault")


class Asked(Step):
    asked_for: ClassVar[bool] = True

    async def before_target(self, exchange: Exchange) -> None:
        raise ValueError("a fault")


async def failing(error: Exception) -> None:
    raise error


def test_a_step_acts_only_where_it_has_something_to_do() -> None:
    steps = [Added(), Asked()]
    assert acting(steps, "before_target") == steps[1:]
    assert acting(steps, "with_target") == steps[:1]
    assert acting(steps, "before_send") == []


@pytest.mark.parametrize("error", [ValueError("a fault"), Conflict("no model")])
async def test_only_who_asked_for_a_step_gets_its_fault(error: Exception, caplog: pytest.LogCaptureFixture):
    with pytest.raises(type(error)):
        await act(Asked(), failing(error))
    with caplog.at_level(logging.WARNING):
        await act(Added(), failing(error))
    assert "Added was skipped for a request" in caplog.text


async def test_no_step_hangs_for_ever(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture):
    monkeypatch.setattr(Step, "limit_s", 0.01)
    with pytest.raises(Unavailable, match="try again"):
        await act(Asked(), asyncio.Future())
    with caplog.at_level(logging.WARNING):
        await act(Added(), asyncio.Future())
    assert "longer than" in caplog.text
