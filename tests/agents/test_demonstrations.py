"""Demonstrations: which records they become, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from burnish.agents import BadDemonstration, NotRunning, Refused
from burnish.agents.demonstrations import records, store
from tests.agents.conftest import Wire
from tests.support.llama_server import free_port

STEPS = [(0, "left"), (-1, "right"), (0, "right")]


def made(demonstrations: Any, memory: int | None = None) -> list[dict[str, Any]]:
    return records("walk", demonstrations, "Walk.", lambda place: f"You are at {place}.", memory)


def test_they_are_imported_as_answers_that_training_can_use_and_only_once(wire: Wire) -> None:
    agent = wire.agent()
    lines = made([STEPS, [(5, "left")]] * 20)
    assert store(agent.burnish, lines) == {"demonstrations": 4, "new": 4}
    assert store(agent.burnish, lines) == {"demonstrations": 4, "new": 0}
    listed = [
        each for each in wire.get("/burnish/completions", limit=50)["data"] if each["agent"] == "agents"
    ]
    found = [wire.get(f"/burnish/completions/{each['id']}") for each in listed]
    texts = [[message["content"] for message in each["messages"]] for each in found]
    assert ["Walk.", "You are at 0.", "left", "You are at -1.", "right", "You are at 0."] in texts
    assert {each["reply"]["content"] for each in found} == {"left", "right"}
    feedback = wire.get("/v1/feedback", limit=50)["data"]
    assert {(each["reward"], *each["tags"]) for each in feedback} == {(1.0, "demonstration")}


def test_more_than_one_batch_is_sent_whole(wire: Wire) -> None:
    lines = made([[(1000 + place, "right")] for place in range(60)])
    assert store(wire.agent().burnish, lines) == {"demonstrations": 60, "new": 60}


def test_memory_says_how_much_of_the_episode_a_prompt_holds() -> None:
    def contents(memory: int | None) -> list[list[str]]:
        lines = [each for each in made([STEPS], memory) if each["object"] == "completion"]
        return [[message["content"] for message in each["messages"]] for each in lines]

    assert contents(0) == [["Walk.", f"You are at {place}."] for place in (0, -1, 0)]
    assert contents(1)[2] == ["Walk.", "You are at -1.", "right", "You are at 0."]
    assert len(contents(None)[2]) == 6


@pytest.mark.parametrize(
    ("demonstrations", "words"),
    [
        ([], "there are no demonstrations"),
        (["left"], "demonstration 0 must be an episode: a list of"),
        ([STEPS, []], "demonstration 1 must be an episode"),
        ([[(0, "left", 1.0)]], "has a step"),
        ([[(0, 1)]], "the reply a text that isn't empty"),
        ([[(0, "  ")]], "the reply a text that isn't empty"),
    ],
)
def test_what_is_no_demonstration_is_refused_in_words(demonstrations: Any, words: str) -> None:
    with pytest.raises(BadDemonstration, match=words):
        made(demonstrations)


def test_one_that_cannot_teach_is_said(wire: Wire) -> None:
    secret = "sk-proj-" + "a1B2" * 12
    with pytest.raises(Refused, match=r"a demonstration can't be learnt from: .*key or a token"):
        store(wire.agent().burnish, made([[(0, f"my key is {secret}")]]))


def test_without_a_burnish_nothing_is_lost_but_time(wire: Wire) -> None:
    with pytest.raises(NotRunning, match="What was sent before is kept"):
        store(wire.agent(url=f"http://127.0.0.1:{free_port()}").burnish, made([STEPS]))


def test_a_burnish_that_does_not_train_says_so(wire: Wire) -> None:
    agent = wire.agent(task="untrained")
    with pytest.raises(Refused, match="versions are not swapped, because engine = none"):
        agent.warm_start([STEPS])
    with pytest.raises(Refused, match="versions are not swapped, because engine = none"):
        agent.learn()
