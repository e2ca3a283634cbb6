"""What goes through burnish arrives as it was sent, in both directions, whatever it is."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.exchanging import (
    Asked,
    Planned,
    Stage,
    chunks,
    framings,
    request_headers,
    response_headers,
    stage,
)

statuses = st.sampled_from(
    [*range(200, 209), *range(300, 309), *range(400, 432), 451, 499, *range(500, 512), 520, 599]
)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with stage(tmp_path_factory.mktemp("exact")) as made:
        yield made


planned = st.builds(Planned, statuses, response_headers, chunks, framings)


@settings(max_examples=50)
@given(request_headers, st.binary(max_size=100), st.booleans(), planned)
def test_an_unknown_path(running: Stage, headers, body, chunked, planned) -> None:
    running.check(Asked("POST", "/v1/other?a=%2Fb&c", headers, body, chunked), planned)
