"""One scripted model, one burnish before it, and nobody's home folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.clients.agent import INSTALLED, Agent
from tests.clients.script import decide
from tests.support.burnish import Burnish, running
from tests.support.scripted_model import ScriptedModel, scripted_model

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All tests of this folder run agents, which need to be installed."""
    missing = pytest.mark.skip(reason="scripts/clients has not been run")
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.clients)
            if isinstance(item, pytest.Function) and hasattr(item, "callspec"):
                # With -n 2 --dist loadgroup, the tests of one agent, or SDK, stay together.
                item.add_marker(pytest.mark.xdist_group(f"{item.path.stem} {_client(item.callspec)}"))
            if not INSTALLED.exists():
                item.add_marker(missing)


def _client(callspec: Any) -> str:
    return next((each.name for each in callspec.params.values() if hasattr(each, "name")), callspec.id)


@pytest.fixture(scope="package")
def model() -> Iterator[ScriptedModel]:
    with scripted_model(decide) as running_model:
        yield running_model


@pytest.fixture(scope="package")
def burnish(model: ScriptedModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Burnish]:
    data = tmp_path_factory.mktemp("burnish") / "data"
    with running(data, "--no-train", "--upstream", model.url) as up:
        yield up


@pytest.fixture
def agent(burnish: Burnish, model: ScriptedModel, tmp_path: Path) -> Iterator[Agent]:
    """An agent in an empty home folder, with nothing logged yet."""
    agent = Agent(burnish, model, tmp_path / "home")
    agent.begin()
    yield agent
    agent.end()
