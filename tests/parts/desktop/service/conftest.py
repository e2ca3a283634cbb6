from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.user_manager import NoManager, UserManager, user_manager


@pytest.fixture(scope="session")
def manager() -> Iterator[UserManager]:
    try:
        with user_manager() as running:
            yield running
    except NoManager as error:
        pytest.skip(str(error))
