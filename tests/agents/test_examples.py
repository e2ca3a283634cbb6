"""The examples: their worlds and floors, and the whole way at a small size."""

from __future__ import annotations

import random
import re
import signal
import subprocess
import sys
from pathlib import Path
from statistics import fmean

import pytest

pytest.importorskip("gymnasium")

from examples import blackjack, text_world
from examples.learning_agents import Size
from examples.quest import CHEST, KEY, MOST_STEPS, Quest, View, perfect
from tests.support.execute import execute
from tests.support.tiny_gguf import random_llama

ROOT = Path(__file__).parents[2]
SEEDS = range(1000)


def solved(policy: object, seeds: range = SEEDS) -> float:
    return fmean(text_world.floor(policy, seeds))  # type: ignore[arg-type]


def test_every_quest_can_be_solved_by_searching_and_few_are_by_chance() -> None:
    rng = random.Random(0)
    assert solved(perfect) == 1.0
    assert 0.05 < solved(lambda view: rng.choice(view.choices)) < 0.2
    assert solved(lambda view: view.choices[0]) < 0.2, "the order of the choices tells nothing"
    assert solved(lambda view: "wait") == 0.0


def test_a_seed_is_always_the_same_quest_and_others_differ() -> None:
    def seen(seed: int) -> list[View]:
        env = Quest()
        found = [env.reset(seed=seed)[0]]
        for _ in range(MOST_STEPS):
            found.append(env.step(perfect(found[-1]))[0])
        return found

    assert seen(7) == seen(7)
    assert len({str(seen(seed)[0]) for seed in range(50)}) > 40


def test_the_quest_tells_all_that_a_search_needs_and_rewards_key_and_chest() -> None:
    env = Quest()
    for seed in SEEDS:
        view, _ = env.reset(seed=seed)
        total, done = 0.0, False
        while not done:
            assert (CHEST in view.choices) <= view.has_key
            if view.locked:
                before = view
                view, reward, done, _, _ = env.step(CHEST)
                assert (reward, done, view.room) == (0.0, False, before.room), "it is locked"
                break
            assert (KEY in view.choices) <= (not view.has_key)
            view, reward, done, _, _ = env.step(perfect(view))
            total += reward
        assert total in (0.0, 0.3, 1.0)


def test_demonstrations_hold_possible_actions_at_random() -> None:
    shown = [step for episode in text_world.demonstrations(0, 300) for step in episode]
    assert all(reply in view.choices for view, reply in shown)
    right = fmean(reply == perfect(view) for view, reply in shown)
    assert right < 0.5
    hands = [step for episode in blackjack.demonstrations(0, 128) for step in episode]
    assert len(hands) == 128
    assert sum(reply == "hit" for _, reply in hands) == 64


def test_what_a_seeker_says_is_read_back() -> None:
    env = Quest()
    agent = text_world.Seeker("http://127.0.0.1:1")
    view, _ = env.reset(seed=1)
    text = agent.format_observation(view)
    listed = [line.removeprefix("- ") for line in text.splitlines()[1:]]
    assert tuple(agent.extract_action(each) for each in listed) == view.choices
    assert agent.extract_action("I sing") is None
    agent.close()


FLOORS = {"random": -0.402, "always stick": -0.186, "hit below 17": -0.081, "basic strategy": -0.052}
"""Measured over 60,000 hands, ± .008 (the issue's)."""


@pytest.mark.parametrize("name", FLOORS)
def test_the_floors_of_blackjack_are_those_that_are_known(name: str) -> None:
    got = blackjack.hands(blackjack.floors(0)[name], range(4000))
    assert fmean(got) == pytest.approx(FLOORS[name], abs=0.05)


def test_a_table_of_probabilities_plays_like_the_policy_that_it_describes() -> None:
    table = {state: (0.0, 1.0) if blackjack.basic(state) else (1.0, 0.0) for state in blackjack.STATES}
    assert blackjack.hands(blackjack.drawn(table, 0), range(200)) == blackjack.hands(
        blackjack.basic, range(200)
    )
    assert blackjack.sticks(table, range(18, 22)) == 1.0
    assert blackjack.sticks(table, range(4, 12)) == 0.0
    nothing = dict.fromkeys(blackjack.STATES, (0.0, 0.0))
    assert set(blackjack.hands(blackjack.drawn(nothing, 0), range(20))) == {-1.0}


def test_training_hands_have_each_first_sum_as_often_and_none_is_measured() -> None:
    size = Size(demonstrations=0, rounds=3, seeds=36, attempts=1, fresh=0)
    of_round = blackjack.even_seeds(0, size)
    env = blackjack.make()
    rounds = [of_round(number) for number in range(3)]
    seeds = [seed for each in rounds for seed in each]
    assert len(set(seeds)) == 3 * 36
    assert max(seeds) < 1_000_000
    for each in rounds:
        sums = [env.reset(seed=seed)[0][0] for seed in each]
        assert max(map(sums.count, sums)) - min(map(sums.count, sums)) <= 1
    env.close()


@pytest.mark.parametrize("size", [blackjack.SMALL, blackjack.FULL, text_world.SMALL, text_world.FULL])
@pytest.mark.parametrize("episodes", [1, 2, 15, 16, 1000, 5000])
def test_as_many_episodes_are_played_as_one_asks_for(size: Size, episodes: int) -> None:
    asked = size.of(episodes)
    played = asked.rounds * asked.seeds * asked.attempts
    assert episodes <= played < episodes + asked.seeds * asked.attempts
    assert (asked.attempts, asked.fresh) == (size.attempts, size.fresh)
    assert size.of(0) == size


@pytest.mark.parametrize("count", ["0", "-1", "many"])
def test_a_number_of_episodes_that_is_none_is_refused(count: str) -> None:
    done = execute(sys.executable, "-m", "examples.text_world", "--episodes", count, cwd=ROOT, limit_s=60)
    assert done.returncode == 2
    assert "expected 1 or more" in done.stderr or "expected one argument" in done.stderr


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", ["blackjack", "text_world"])
def test_an_example_shows_the_way(name: str, tmp_path: Path) -> None:
    shows_the_way(
        name, "--device", "cpu", "--episodes", "15", "--model", str(random_llama(tmp_path / "t.gguf"))
    )


def shows_the_way(name: str, *options: str) -> None:
    """Run an example at its small size."""
    done = execute(sys.executable, "-m", f"examples.{name}", *options, cwd=ROOT, limit_s=880)
    assert done.returncode == 0, done.stderr
    lines = [line.strip().partition("  ")[2] for line in done.stdout.splitlines()]
    for words in ("random: ", "base model: ", "base model with a grammar: ", "warm start: version 1 from ",
                  "after the warm start: ", "after the rewards: "):  # fmt: skip
        assert any(line.startswith(words) for line in lines), (words, done.stdout)
    (learnt,) = [line for line in lines if line.startswith("round 1: ")]
    # So few attempts may all get the same, which teaches nothing. test_learning.py has some that differ.
    outcome = r"; (version 2 from \d+ steps of \d+ episodes$|nothing was learnt: .* got the same reward)"
    assert re.search(outcome, learnt), done.stdout


def test_sigterm_ends_what_an_example_started() -> None:
    code = """
import signal, sys
from examples.learning_agents import command_line
sys.argv = ["example"]
command_line("")
try:
    print("ready", flush=True)
    signal.pause()
finally:
    print("stopped", flush=True)
"""
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        process.terminate()
        assert process.stdout.read() == "stopped\n"
    assert process.returncode == 128 + signal.SIGTERM
