"""The examples as a user runs them, with the small model. With a tiny one they run in test_examples.py."""

from __future__ import annotations

import pytest

from tests.agents.test_examples import shows_the_way

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.mark.parametrize("name", ["blackjack", "text_world"])
def test_an_example_shows_the_way_with_the_small_model(name: str) -> None:
    shows_the_way(name)
