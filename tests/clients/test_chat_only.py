"""The agents that speak no chat completions, before an upstream that speaks nothing else: burnish translates."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.clients.script import decide
from tests.clients.test_agents import (  # noqa: F401  (fixtures and tests: the same is true here)
    AGENTS,
    Headless,
    agent,
    connected,
    test_answers,
    test_rl,
    test_tools,
)
from tests.support.burnish import Burnish, running
from tests.support.scripted_model import ScriptedModel, scripted_model

OTHERS = [each for each in AGENTS if each.name in ("claude-code", "codex")]


@pytest.fixture(scope="module", params=OTHERS, ids=lambda each: each.name)
def headless(request: pytest.FixtureRequest) -> Headless:
    return request.param


@pytest.fixture(scope="module")
def model() -> Iterator[ScriptedModel]:
    with scripted_model(decide, only="/v1/chat/completions") as running_model:
        yield running_model


@pytest.fixture(scope="module")
def burnish(model: ScriptedModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Burnish]:
    data = tmp_path_factory.mktemp("burnish") / "data"
    with running(data, "--no-train", "--upstream", model.url) as up:
        yield up
