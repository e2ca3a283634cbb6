"""Real SDKs before burnish: their answers are in the log as they assembled them, and each rating finds its answer."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest

from tests.clients.sdk import Program, Sdk, SdkModel, Talk, running_sdk, sdk_model
from tests.support.burnish import Burnish, running
from tests.support.scripted_model import RETRY_AFTER
from tests.support.wires import Says

REFUSALS = (HTTPStatus.NOT_FOUND, HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.INTERNAL_SERVER_ERROR)
"""An SDK names an error for each."""
PYTHON = ("sdks/bin/python", "programs.py")
PYTHON_2 = ("sdks-openai2/bin/python", "programs.py")
NODE = ("node_modules/.bin/node", "programs.mjs")
OPENAI = ("NotFoundError", "RateLimitError", "InternalServerError")
GOOGLE = ("ClientError", "ClientError", "ServerError")
LANGCHAIN = ("OpenAIModelNotFoundError", "OpenAIRateLimitError", "OpenAIAPIError")
PYDANTIC_AI = ("ModelNotFoundError", "ModelRateLimitError", "ModelServerError")
OLLAMA = ("ResponseError",) * 3
AI_SDK = ("AI_APICallError",) * 3
SDKS = [
    Sdk("openai-python", (*PYTHON, "openai_chat"), OPENAI, header="whole"),
    Sdk("openai-python-responses", (*PYTHON, "openai_responses"), OPENAI, header="whole"),
    Sdk("anthropic-python", (*PYTHON, "anthropic_messages"), OPENAI),
    Sdk("ollama-python", (*PYTHON, "ollama_chat"), OLLAMA, id="never", says_when=False),
    Sdk("google-genai-python", (*PYTHON, "google_genai"), GOOGLE),
    Sdk("langchain-python", (*PYTHON, "langchain_chat"), LANGCHAIN, id="whole", thoughts="never"),
    Sdk("litellm", (*PYTHON_2, "litellm"), OPENAI),
    Sdk("openai-agents", (*PYTHON, "openai_agents", "responses"), OPENAI, header="never", runs_tools=True),
    Sdk("openai-agents-chat", (*PYTHON, "openai_agents", "chat"), OPENAI, header="never", runs_tools=True),
    Sdk("pydantic-ai", (*PYTHON, "pydantic_ai"), PYDANTIC_AI, header="never", runs_tools=True),
    Sdk("llama-index", (*PYTHON_2, "llama_index"), OPENAI, header="never"),
    Sdk("openai-node", (*NODE, "openai_chat"), OPENAI, header="whole", thoughts="whole"),
    Sdk("openai-node-responses", (*NODE, "openai_responses"), OPENAI, header="whole"),
    Sdk("anthropic-node", (*NODE, "anthropic_messages"), OPENAI),
    Sdk("ollama-node", (*NODE, "ollama_chat"), OLLAMA, id="never", says_when=False),
    Sdk("google-genai-node", (*NODE, "google_genai"), ("ApiError",) * 3, says_when=False),
    Sdk("langchain-node", (*NODE, "langchain_chat"), OPENAI, header="never"),
    Sdk("ai-sdk", (*NODE, "ai_sdk", "compatible"), AI_SDK),
    Sdk("ai-sdk-openai", (*NODE, "ai_sdk", "openai"), AI_SDK),
    Sdk("ai-sdk-anthropic", (*NODE, "ai_sdk", "anthropic"), AI_SDK),
]


def translated(sdk: Sdk) -> Sdk:
    """The same before an upstream that speaks chat completions only."""
    return replace(sdk, name=f"{sdk.name}-translated", only="/v1/chat/completions")


OTHERS = [translated(each) for each in SDKS if each.name.startswith(("anthropic", "google-genai", "ollama"))]
BY_REFERENCE = Sdk("ai-sdk-openai-store", (*NODE, "ai_sdk", "openai", "store"), AI_SDK)
INSTRUCTOR = Sdk("instructor", (*PYTHON_2, "instructor"), OPENAI, header="never")
ON_ANOTHER = ("langchain-python", "openai-agents-chat", "pydantic-ai", "llama-index", "langchain-node")
"""Their streams are read by the SDKs of OpenAI."""
OF_THE_ENGINE = [each for each in SDKS if each.name not in ON_ANOTHER]
"""What llama.cpp does not speak burnish translates."""

_numbers = itertools.count(100)


def sdks(*params: Sdk) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("sdk", params, ids=lambda each: each.name, indirect=True)


def standing(only: str) -> Any:
    """A fixture with one burnish for all tests of this file."""

    @pytest.fixture(scope="module")
    def behind_burnish(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Burnish, SdkModel]]:
        data = tmp_path_factory.mktemp("burnish") / "data"
        with sdk_model(only=only) as model, running(data, "--no-train", "--upstream", model.url) as up:
            yield up, model

    return behind_burnish


every_format, chat_only = standing(""), standing(OTHERS[0].only)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Burnish]:
    with running(tmp_path_factory.mktemp("engine") / "data", "--no-train") as up:
        yield up


@pytest.fixture(scope="module", params=[*SDKS, *OTHERS], ids=lambda each: each.name)
def sdk(request: pytest.FixtureRequest) -> Sdk:
    return request.param


@pytest.fixture(scope="module")
def started(
    sdk: Sdk, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Program, Burnish, SdkModel]]:
    burnish, model = request.getfixturevalue("chat_only" if sdk.only else "every_format")
    with running_sdk(sdk, burnish.url, tmp_path_factory.mktemp(sdk.name)) as program:
        yield program, burnish, model


@pytest.fixture(params=[False, True], ids=["whole", "streamed"])
def talk(sdk: Sdk, started: tuple[Program, Burnish, SdkModel], request: pytest.FixtureRequest) -> Talk:
    return Talk(sdk, *started, request.param)


def question() -> str:
    return f"Why is sky number {next(_numbers)} blue?"


def answer() -> Says:
    """One that nobody gave before."""
    number = next(_numbers)
    return Says(f"Sky {number} scatters what is blue – by λ⁻⁴ 🌤.", thought=f"They ask for sky {number}.")


def call() -> Says:
    return Says(arguments={"city": "Zürich", "days": next(_numbers)}, thought="I must look.")


def test_a_session(talk: Talk) -> None:
    """Turns, a tool, regenerations, an edit and a compaction: each rating reaches the answer that it was given to."""
    first = talk.ask([], question(), answer())
    talk.rate_by_name(first)
    looked = talk.ask_for_tool(first.history, question(), call(), "sunny", answer())
    talk.rate_by_name(looked)
    rated = talk.rate_by_type(looked)
    # The history may keep that exchange, or leave it out.
    third = talk.ask(rated.history, question(), answer())
    talk.rate_by_type(third)
    fourth = talk.ask(third.history, question(), answer())
    regenerated = talk.again(fourth, answer())
    talk.rate_by_name(regenerated)
    talk.rate_by_type(regenerated)
    talk.rate_by_type(fourth)  # they went back to it
    edited = talk.ask(first.history, question(), answer())
    talk.rate_by_type(edited)
    talk.rate_by_name(fourth)
    summary = talk.ask([], f"All that was said before: skies are blue. {question()}", answer())
    talk.rate_by_type(summary)
    kept = talk.ask([summary.history[0], fourth.history[-1]], question(), answer())
    talk.rate_by_type(kept)
    talk.rate_by_name(kept)
    logged = talk.logged()
    assert talk.answers == [talk.sdk.sees(each, talk.streamed) for each in logged]
    assert talk.rated() == talk.rated_as_meant(logged)
    assert {each["outcome"] for each in logged} == {"complete"}
    assert not any(b"/rl" in each.body for each in talk.model.requests)


def test_answers_that_read_alike(talk: Talk) -> None:
    """Whose history tells them apart are rated as ever; where nothing does, nothing is rated."""
    one = talk.ask([], question(), Says("Done.", thought="Easy."))
    other = talk.ask([], question(), Says("Done.", thought="Easy."))
    talk.rate_by_type(one)
    talk.rate_by_type(other)
    talk.rate_by_type(talk.again(other, Says("Done.", thought="Easy.")))
    talk.rate_by_type(one)
    summary = talk.ask([], "All that was said before: it is done.", answer())
    unclear = talk.type([summary.history[0], one.history[-1]], "/rl good which one")
    assert unclear.answer["text"].startswith("burnish: nothing was rated: answers that read exactly like")
    assert talk.rated() == talk.rated_as_meant(talk.logged())


def test_errors_are_its_own(talk: Talk) -> None:
    """What the upstream refuses is what the SDK says; a rating after it means the answer before."""
    first = talk.ask([], question(), answer())
    for status, expected in zip(REFUSALS, talk.sdk.errors, strict=True):
        error = talk.fail(first.history, question(), status)
        assert (error["type"], error["status"]) == (expected, status), error["message"]
        assert f"refused with {status}" in error["message"]
        assert error["retry_after"] == (RETRY_AFTER if talk.sdk.says_when else None)
    talk.rate_by_type(first)
    assert list(talk.rated().values()) == [talk.logged()[0]["id"]]


@sdks(BY_REFERENCE, translated(BY_REFERENCE))
def test_answers_that_are_named_instead_of_sent(talk: Talk) -> None:
    """As the AI SDK does by default: they passed through burnish, so it knows what they said."""
    first = talk.ask([], question(), Says("Blue is scattered."))
    talk.rate_by_type(first)
    call = Says(arguments={"city": "Ulm", "days": 1})
    looked = talk.ask_for_tool(first.history, question(), call, "sunny", Says("It is sunny."))
    typed = talk.rate_by_type(looked)
    last = talk.ask(typed.history, question(), Says("So it is."))
    talk.rate_by_name(last)
    logged = talk.logged()
    assert talk.answers == [talk.sdk.sees(each, talk.streamed) for each in logged]
    assert talk.rated() == talk.rated_as_meant(logged)
    assert len({each["conversation_id"] for each in logged}) == 1
    history = str(logged[-1]["messages"])
    assert all(words in history for words in ("Blue is scattered.", "Ulm", "sunny", "It is sunny."))
    told = talk.model.requests[-1].body
    if talk.sdk.only:
        assert all(words in told for words in (b"Blue is scattered.", b"Ulm", b"sunny", b"It is sunny."))
    assert b"/rl" not in told
    assert b"_rl_" not in told


@sdks(INSTRUCTOR)
@pytest.mark.parametrize("talk", [False], ids=["whole"], indirect=True)
def test_answers_that_are_objects(talk: Talk) -> None:
    """What burnish says to ``/rl`` is no object, so the SDK raises; the rating has been given all the same."""
    first = talk.ask([], question(), call())
    talk.rate_by_name(first)
    typed = talk.program.turn(of=first.history, user="/rl good typed", stream=False)
    assert typed["error"]["type"] == "InstructorRetryException", typed
    (logged,) = talk.logged()
    assert talk.answers == [talk.sdk.sees(logged, talk.streamed)]
    assert talk.rated() == {"rating 0": logged["id"], "typed": logged["id"]}


@sdks(*OF_THE_ENGINE)
def test_a_real_engines_stream(sdk: Sdk, engine: Burnish, tmp_path: Path) -> None:
    """What the embedded engine streams makes the same answer in the SDK as in the log."""
    with running_sdk(sdk, engine.url, tmp_path / "home") as program:
        talk = Talk(sdk, program, engine, SdkModel(), streamed=True)
        # SDKs of Responses raise if an answer is longer than they ask for, so they ask for the likeliest one.
        got = program.turn(of=[], user="What is the capital of France? Say one word.", stream=True)
    assert "error" not in got, got
    assert got["answers"][0]["text"]
    assert got["answers"] == [sdk.sees(each, streamed=True) for each in talk.logged()]
