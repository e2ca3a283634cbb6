"""Valid actions by grammar: each way is found by trying, on engines that understand it, ignore it or refuse it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest

from burnish.agents import GymAgent
from burnish.agents.choices import CONSTRAINTS, NONE, Choices, gbnf
from burnish.agents.errors import Refused
from tests.agents.conftest import Corridor, Walker, Wire
from tests.support.burnish import running
from tests.support.scripted_model import Asked, Fails
from tests.support.wires import Says

PROSE = "Well, one could go left or right."
Json = Mapping[str, Any]


def by_grammar(body: Json) -> list[str]:
    return [json.loads(each) for each in body["grammar"].removeprefix("root ::= ").split(" | ")]


def by_regex(body: Json) -> list[str]:
    return [re.sub(r"\\(.)", r"\1", each) for each in body["regex"].strip("()").split("|")]


# What an engine reads the texts from, by the field that it knows.
ENGINES: dict[str, Callable[[Json], list[str]]] = {
    "grammar": by_grammar,
    "structured_outputs": lambda body: list(body["structured_outputs"]["choice"]),
    "guided_choice": lambda body: list(body["guided_choice"]),
    "regex": by_regex,
    "response_format": lambda body: [
        json.dumps({"action": each})
        for each in body["response_format"]["json_schema"]["schema"]["properties"]["action"]["enum"]
    ],
}


class Choosing(Walker):
    def valid_replies(self, observation: int) -> Sequence[str]:
        return ["left", "right"]


@pytest.mark.parametrize("strict", [False, True], ids=["ignores others", "refuses others"])
@pytest.mark.parametrize("field", ENGINES)
def test_an_engine_answers_with_valid_actions_by_the_field_that_it_knows(
    field: str, strict: bool, wire: Wire
) -> None:
    def decide(asked: Asked) -> Says | Fails:
        if strict and ENGINES.keys() & asked.body.keys() - {field}:
            return Fails(HTTPStatus.BAD_REQUEST)
        return Says(ENGINES[field](asked.body)[-1] if field in asked.body else PROSE)

    wire.model.decide = decide
    agent = wire.agent(Choosing, task=field)
    played = agent.play(Corridor, range(2), held_out=True)
    assert (played.reward, played.invalid_share, played.notes) == (1.0, 0.0, ())
    assert agent.burnish.choices.words.endswith(f"by {field}")
    trials = [asked for asked in wire.model.asked if "left" not in str(asked.body)]
    assert len(trials) <= len(ENGINES) + 1, "each way is tried once"


def test_an_engine_without_a_grammar_is_said_in_words(wire: Wire) -> None:
    wire.says(PROSE)
    played = wire.agent(Choosing).play(Corridor, range(2), held_out=True)
    (note,) = played.notes
    assert played.invalid_share == 1.0
    assert NONE in note


def test_a_reply_that_is_right_by_chance_is_no_grammar() -> None:
    assert Choices(lambda question, fields: PROSE).fields(["left", "right"]) == {}

    def refuses(question: str, fields: Mapping[str, Any]) -> str:
        raise Refused("unknown field")

    choices = Choices(refuses)
    assert choices.fields(["left"]) == {}
    assert choices.words == NONE


def test_texts_are_escaped_for_llama_cpp() -> None:
    assert gbnf(['say "hi"', "a\\b", "zwei\nZeilen"]) == r'root ::= "say \"hi\"" | "a\\b" | "zwei\nZeilen"'
    assert [constraint.name for constraint in CONSTRAINTS] == list(ENGINES)


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running(tmp_path_factory.mktemp("embedded") / "data", "--no-train") as burnish:
        yield burnish.url


def test_the_embedded_engine_plays_by_grammar(embedded: str, wire: Wire, tmp_path: Path) -> None:
    class Odd(GymAgent):
        def get_system_prompt(self) -> str:
            return ""

        def format_observation(self, observation: int) -> str:
            return "Say something about the weather."

        def extract_action(self, response: str) -> int:
            return ['say "hi"', "zwei\nZeilen", "[a]*"].index(response)

        def valid_replies(self, observation: int) -> list[str]:
            return ['say "hi"', "zwei\nZeilen", "[a]*"]

    agent = wire.agent(Odd, url=embedded, max_tokens=16)
    episode = agent.episode()
    assert {episode.act(0) for _ in range(6)} <= {0, 1, 2}
    assert agent.burnish.choices.words.endswith("by grammar")
    assert not episode.end().invalid
