"""The small model learns quests in three rooms: ``python -m examples.text_world [--full] [--help]``.

It needs the extra ``agents``. The world is in quest.py. Without ``--full`` it shows the way in about a minute, and
learns next to nothing. All figures are shares of fresh seeds that were solved, played over the wire.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Sequence

from burnish.agents import GymAgent, Rollouts, Rules
from burnish.agents.connection import Version
from burnish.agents.rollouts import interval, mean
from examples.learning_agents import Clock, Size, command_line, judge, learn, own_burnish, warm_start
from examples.quest import CHEST, CHEST_WORTH, KEY, MOST_STEPS, Quest, View, perfect

FULL = Size(demonstrations=200, rounds=6, seeds=24, attempts=6, fresh=200)
SMALL = Size(demonstrations=12, rounds=1, seeds=1, attempts=3, fresh=2)
FLOOR_QUESTS = 2000
BASE_SEEDS = 50
NOTHING = "wait"
"""Done when a reply is no action: a step is lost."""
VERBS = ("go", "take", "open", "look")


class Seeker(GymAgent):
    def get_system_prompt(self) -> str:
        return "Find the key, then open the chest."

    def format_observation(self, observation: View) -> str:
        lines = [f"- {each}{_known(observation, each)}" for each in observation.choices]
        place = f"{observation.room}, with a locked chest." if observation.locked else f"{observation.room}."
        held = "You have the key." if observation.has_key else "You have no key."
        return "\n".join([f"{place} {held}", *lines])

    def extract_action(self, response: str) -> str | None:
        said = " ".join(response.casefold().partition("(")[0].split()).strip("-. ")
        return said if said.partition(" ")[0] in VERBS else None


class Restricted(Seeker):
    """The same with a grammar: the engine gives no other reply than what can be done."""

    def valid_replies(self, observation: View) -> Sequence[str]:
        return observation.choices


def _known(view: View, choice: str) -> str:
    return f" ({view.known[choice]})" if choice in view.known else ""


def solved(rollouts: Rollouts) -> list[float]:
    """Return 1 for each quest that was solved, else 0."""
    # The key alone is worth less than half of the chest, and penalties take away less than the other half.
    return [float(outcome.reward > CHEST_WORTH / 2) for outcome in rollouts.sound]


def floor(policy: Callable[[View], str], seeds: Sequence[int]) -> list[float]:
    env, found = Quest(), []
    for seed in seeds:
        view, _ = env.reset(seed=seed)
        done = cut = False
        while not done and not cut:
            view, _, done, cut, _ = env.step(policy(view))
        found.append(float(done))
    return found


def demonstrations(seed: int, count: int) -> list[list[tuple[View, str]]]:
    """Return single steps in which anything possible is done: they teach the form, and nothing of the search.

    A third of the views has the key, and a third the chest that can be opened. A model that never saw a form avoids it.
    """
    rng, found = random.Random(seed), []
    views = wandering(rng, 100_000 * seed)
    for number in range(count):
        wanted = (None, KEY, CHEST)[number % 3]
        later = itertools.islice(views, rng.randrange(MOST_STEPS), None)
        view = next(view for view in later if wanted is None or wanted in view.choices)
        found.append([(view, rng.choice(view.choices))])
    return found


def wandering(rng: random.Random, first: int) -> Iterator[View]:
    """Yield what is seen by a player who does anything possible, in quest after quest."""
    env = Quest()
    for seed in itertools.count(first):
        view, _ = env.reset(seed=seed)
        over = False
        while not over:
            yield view
            view, _, done, cut, _ = env.step(rng.choice(view.choices))
            over = done or cut


def training_seeds(fresh_from: int, number: int, size: Size) -> range:
    """Return the seeds of a round, far from the fresh ones."""
    first = fresh_from - 500_000 + number * size.seeds
    return range(first, first + size.seeds)


def measure(
    what: str, agent: Seeker, fresh: Sequence[int], clock: Clock, version: Version = "candidate"
) -> None:
    rollouts = agent.play(Quest, fresh, version=version, held_out=True)
    got = solved(rollouts)
    clock.say(f"{what}: {mean(got):.3f} ± {interval(got):.3f} of {len(fresh)} fresh seeds solved; {rollouts}")


def main() -> None:
    given, clock = command_line(__doc__), Clock()
    size, rng = (FULL if given.full else SMALL).of(given.episodes), random.Random(given.seed)
    first = given.fresh_from
    for name, policy in {"random": lambda view: rng.choice(view.choices), "perfect": perfect}.items():
        got = floor(policy, range(first, first + FLOOR_QUESTS))
        clock.say(f"{name}: {mean(got):.3f} ± {interval(got):.3f} of {FLOOR_QUESTS} solved")
    rules = Rules(memory=0, max_tokens=8, max_steps=MOST_STEPS, default_action=NOTHING, invalid_penalty=-0.1)
    with own_burnish(given) as url:
        agent = Seeker(url, task="quest", rules=rules)
        fresh = range(first, first + size.fresh)
        measure("base model", agent, fresh[:BASE_SEEDS], clock, "base")
        restricted = Restricted(agent.burnish, rules=rules)
        measure("base model with a grammar", restricted, fresh[:BASE_SEEDS], clock, "base")
        warm_start(agent, demonstrations(given.seed, size.demonstrations), clock)
        measure("after the warm start", agent, fresh, clock)
        learn(agent, Quest, lambda number: training_seeds(first, number, size), size, clock, objective="sft")
        measure("after the rewards", agent, fresh, clock)
        judge(agent, Quest, given, size, clock)
        agent.close()


if __name__ == "__main__":
    main()
