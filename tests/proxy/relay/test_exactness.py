"""What goes through burnish arrives as it was sent, in both directions: to the byte, and chunk by chunk."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import httpx
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.support.chance import Chance
from tests.support.exchanging import Exchange, Stage, stage
from tests.support.formats import FORMATS
from tests.support.generated import OWN, elsewhere, exchange
from tests.support.patience import within

BATCHES, BATCH = 15, 20
"""How many exchanges there are of each surface, and how many of them at once."""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with stage(tmp_path_factory.mktemp("exact"), model=OWN) as made:
        yield made


def exchanges(running: Stage, make: Callable[[Chance, int], Exchange]) -> int:
    count = 0

    # A smaller seed is no simpler case, so there is nothing to shrink: the message has the whole exchange.
    @settings(max_examples=BATCHES, phases=[Phase.reuse, Phase.generate])
    @given(st.integers(0, 2**64))
    def batch(seed: int) -> None:
        nonlocal count
        # One that was idle while this was generated may be closed just when it is used again.
        running.run(running.hang_up())
        chance = Chance(seed)
        running.check(*(make(chance, number) for number in range(BATCH)))
        count += BATCH

    batch()
    return count


def logged(running: Stage) -> int:
    async def ask() -> int:
        async with httpx.AsyncClient(base_url=running.url, trust_env=False, timeout=within(60)) as http:
            return int((await http.get("/burnish/status")).json()["counts"]["completions"])

    return int(running.run(ask()))


@pytest.mark.parametrize("surface", FORMATS)
def test_every_byte_of_a_completion_arrives_in_both_directions(running: Stage, surface: str) -> None:
    before = logged(running)
    count = exchanges(running, lambda chance, number: exchange(FORMATS[surface], chance, number))
    assert logged(running) - before == count >= BATCHES * BATCH


def test_every_byte_arrives_also_where_nobody_knows_what_it_means(running: Stage) -> None:
    before = logged(running)
    assert exchanges(running, elsewhere) >= BATCHES * BATCH
    assert logged(running) == before
