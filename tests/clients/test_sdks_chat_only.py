"""SDKs of other formats before an upstream that speaks chat completions only: burnish translates."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.clients.sdk import Sdk, Talk
from tests.clients.sdk_model import Says, SdkModel, sdk_model
from tests.clients.test_sdks import (  # noqa: F401  (fixtures and tests: the same is true here)
    BY_REFERENCE,
    SDKS,
    burnish,
    program,
    question,
    talk,
    test_a_session,
    test_answers_that_read_alike,
    test_errors_are_its_own,
)

OTHERS = [each for each in SDKS if each.name.startswith(("anthropic", "google-genai", "ollama"))]


@pytest.fixture(scope="module")
def model() -> Iterator[SdkModel]:
    with sdk_model(only="/v1/chat/completions") as running_model:
        yield running_model


@pytest.fixture(scope="module", params=OTHERS, ids=lambda each: each.name)
def sdk(request: pytest.FixtureRequest) -> Sdk:
    return request.param


@pytest.mark.parametrize("sdk", [BY_REFERENCE], ids=[BY_REFERENCE.name], indirect=True)
def test_answers_that_are_named_instead_of_sent(talk: Talk) -> None:  # noqa: F811  (the fixture)
    """As the AI SDK does by default: burnish has written them, so it knows what they said."""
    first = talk.ask([], question(), Says("Blue is scattered."))
    talk.rate_by_type(first)
    looked = talk.ask_for_tool(
        first.history, question(), Says(arguments={"city": "Ulm", "days": 1}), "sunny", Says("It is sunny.")
    )
    typed = talk.rate_by_type(looked)
    last = talk.ask(typed.history, question(), Says("So it is."))
    talk.rate_by_name(last)
    logged = talk.logged()
    assert talk.answers == [talk.sdk.sees(each, talk.streamed) for each in logged]
    assert talk.rated() == {comment: logged[number]["id"] for comment, number in talk.meant.items()}
    assert len({each["conversation_id"] for each in logged}) == 1
    told = talk.model.requests[-1].body
    assert all(words in told for words in (b"Blue is scattered.", b"Ulm", b"sunny", b"It is sunny."))
    assert b"/rl" not in told
