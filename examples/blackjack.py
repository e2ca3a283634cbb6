"""The small model learns blackjack: ``python -m examples.blackjack [--full] [--help]``.

It needs the extra ``agents``. The environment is Gymnasium's Blackjack-v1. Without ``--full`` it shows the way in
about a minute, and learns next to nothing.

The floors are computed by simulation. With ``--full`` a version's policy is measured so: its probabilities of "hit" and
"stick" are asked for once for each state, by log-probabilities over the wire, and the hands are played with those. That
is the same policy as playing each hand over the wire at temperature 1, and cheaper, since hands repeat states.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import gymnasium
import httpx

from burnish.agents import GymAgent, Rules, find_action
from burnish.agents.rollouts import interval, mean
from examples.learning_agents import Clock, Given, Size, command_line, judge, learn, own_burnish, warm_start

STICK, HIT = 0, 1
ACTIONS = {"stick": STICK, "hit": HIT}
SYNONYMS = {"stick": ("stand", "stay"), "hit": ("draw",)}
State = tuple[int, int, int]
"""Sum of the cards, the dealer's card (1: an ace), whether there is an ace that may count 11."""
STATES = [
    (total, dealer, ace) for ace in (0, 1) for total in range(12 if ace else 4, 22) for dealer in range(1, 11)
]
Policy = Callable[[State], int | None]
"""Chooses an action; None: no valid one, which loses the hand."""
FULL = Size(demonstrations=128, rounds=5, seeds=200, attempts=5, fresh=4000)
SMALL = Size(demonstrations=16, rounds=1, seeds=5, attempts=3, fresh=4)
FEW_STATES = [state for state in STATES[::10] if not state[2]]
"""One for each sum."""
BASE_HANDS = 100
PLAYED_HANDS = 400
LOSS = -1.0


class Player(GymAgent):
    def get_system_prompt(self) -> str:
        return "Blackjack: hit or stick?"

    def format_observation(self, observation: State) -> str:
        total, dealer, ace = observation
        return f"Sum {total}. Dealer {dealer}.{' Usable ace.' if ace else ''}"

    def extract_action(self, response: str) -> int | None:
        return find_action(response, ACTIONS, SYNONYMS)


class Restricted(Player):
    """The same with a grammar: the engine gives no other reply."""

    def valid_replies(self, observation: State) -> Sequence[str]:
        return list(ACTIONS)


def make() -> Any:
    return gymnasium.make("Blackjack-v1")


def hands(policy: Policy, seeds: Sequence[int]) -> list[float]:
    """Play a hand with each seed; returns what each was worth."""
    env, found = make(), []
    for seed in seeds:
        state, _ = env.reset(seed=seed)
        reward, over = 0.0, False
        while not over:
            action = policy(state)
            if action is None:
                reward = LOSS
                break
            state, reward, over, _, _ = env.step(action)
        found.append(float(reward))
    env.close()
    return found


def basic(state: State) -> int:
    """Return what is best with these rules: no doubling, no splitting. Source: Sutton and Barto, figure 5.2."""
    total, dealer, ace = state
    if ace:
        return HIT if total < (19 if dealer in (1, 9, 10) else 18) else STICK
    if total < 12 or (total == 12 and dealer in (2, 3)):
        return HIT
    return HIT if total < 17 and dealer in (1, 7, 8, 9, 10) else STICK


def floors(seed: int) -> dict[str, Policy]:
    rng = random.Random(seed)
    return {
        "random": lambda state: rng.choice((STICK, HIT)),
        "always stick": lambda state: STICK,
        "hit below 17": lambda state: HIT if state[0] < 17 else STICK,
        "basic strategy": basic,
    }


def probabilities(agent: Player, states: Sequence[State]) -> dict[State, tuple[float, float]]:
    """Return the probabilities of stick and hit in these states; what is left names no action."""
    rollout = agent.burnish.begin(task=agent.task, version=agent.version, held_out=True)
    http = httpx.Client(base_url=f"{agent.burnish.url}/r/{rollout['id']}", timeout=600, trust_env=False)

    def ask(state: State) -> tuple[float, float]:
        messages = [
            {"role": "system", "content": agent.get_system_prompt()},
            {"role": "user", "content": agent.format_observation(state)},
        ]
        body = {"model": "default", "messages": messages, "max_tokens": 1, "temperature": 0}
        answer = http.post("/v1/chat/completions", json=body | {"logprobs": True, "top_logprobs": 20})
        likely = answer.raise_for_status().json()["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
        found = [0.0, 0.0]
        for each in likely:
            if (action := agent.extract_action(each["token"])) is not None:
                found[action] += math.exp(each["logprob"])
        return found[STICK], found[HIT]

    with ThreadPoolExecutor(4) as pool:
        found = dict(zip(states, pool.map(ask, states), strict=True))
    http.close()
    agent.burnish.end(rollout["id"])
    return found


def drawn(table: Mapping[State, tuple[float, float]], seed: int) -> Policy:
    """Return the policy of a table of probabilities."""
    rng = random.Random(seed)

    def choose(state: State) -> int | None:
        (stick, hit), die = table[state], rng.random()
        return STICK if die < stick else HIT if die < stick + hit else None

    return choose


def sticks(table: Mapping[State, tuple[float, float]], totals: Sequence[int]) -> float:
    """Return the mean share of sticks among the actions at these sums without an ace, over the dealer's cards."""
    found = [table[state] for state in table if state[0] in totals and not state[2]]
    return mean([stick / (stick + hit) for stick, hit in found if stick + hit])


def measure(what: str, agent: Player, given: Given, size: Size, clock: Clock) -> None:
    table = probabilities(agent, STATES if given.full else FEW_STATES)
    fresh = range(given.fresh_from, given.fresh_from + size.fresh)
    if given.full:
        got = hands(drawn(table, given.seed), fresh)
        valid = mean([stick + hit for stick, hit in table.values()])
        worth = f"{mean(got):+.3f} ± {interval(got):.3f} over {size.fresh} fresh hands"
        clock.say(f"{what}: {worth}, {valid:.1%} of replies valid")
    else:
        clock.say(f"{what}: {agent.play(make, fresh, held_out=True)}")
    shares = " ".join(f"{total}:{sticks(table, [total]):.2f}" for total in range(4, 22))
    high, low = sticks(table, range(18, 22)), 1 - sticks(table, range(4, 12))
    clock.say(f"  sticks at 18 and more: {high:.0%}; hits at 11 and less: {low:.0%}")
    clock.say(f"  share of sticks by sum: {shares}")


def even_seeds(seed: int, size: Size) -> Callable[[int], Sequence[int]]:
    """Return the training hands of each round: as many with each first sum, so that low ones aren't rare."""
    env, first = make(), 1_000_000 * (seed + 1) - 500_000
    by_total: dict[int, list[int]] = {}
    for each in range(first, first + 40 * size.rounds * size.seeds):
        by_total.setdefault(env.reset(seed=each)[0][0], []).append(each)
    env.close()
    totals = sorted(by_total)

    def of_round(number: int) -> list[int]:
        start = number * size.seeds
        chosen = range(start, start + size.seeds)
        return [by_total[totals[at % len(totals)]][at // len(totals)] for at in chosen]

    return of_round


def demonstrations(seed: int, count: int) -> list[list[tuple[State, str]]]:
    """Return states with random actions: they teach the form, and nothing of the game."""
    rng = random.Random(seed)
    names = [*ACTIONS] * count
    return [[(state, name)] for state, name in zip(rng.sample(STATES, count), names, strict=False)]


def main() -> None:
    given, clock = command_line(__doc__), Clock()
    size = (FULL if given.full else SMALL).of(given.episodes)
    fresh = range(given.fresh_from, given.fresh_from + size.fresh)
    for name, policy in floors(given.seed).items():
        got = hands(policy, range(given.fresh_from, given.fresh_from + FULL.fresh))
        clock.say(f"{name}: {mean(got):+.3f} ± {interval(got):.3f}")
    rules = Rules(memory=0, max_tokens=4)
    with own_burnish(given) as url:
        agent = Player(url, task="blackjack", rules=rules)
        for what, base in (
            ("base model", agent),
            ("base model with a grammar", Restricted(agent.burnish, rules=rules)),
        ):
            rollouts = base.play(make, fresh[:BASE_HANDS], version="base", held_out=True)
            clock.say(f"{what}: {rollouts}")
        warm_start(agent, demonstrations(given.seed, size.demonstrations), clock)
        measure("after the warm start", agent, given, size, clock)
        # A policy gradient soon says "stick" to everything, which is worth −.186 already, and never tries a hit again.
        learn(agent, make, even_seeds(given.seed, size), size, clock, objective="sft")
        measure("after the rewards", agent, given, size, clock)
        if given.full:
            rollouts = agent.play(make, fresh[:PLAYED_HANDS], held_out=True)
            clock.say(f"  the same, {PLAYED_HANDS} of these hands played over the wire: {rollouts}")
        judge(agent, make, given, size, clock)
        agent.close()


if __name__ == "__main__":
    main()
