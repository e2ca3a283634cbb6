"""A small text world: find the key, then open the chest, in three rooms. It has the methods of a Gymnasium environment.

A seed decides the rooms' names and how they lie, where key, chest and player are, and what else there is to look at. So
what is learnt on some seeds can only be the way to search. A quest is worth 1: .3 for the key, .7 for the chest.
"""

from __future__ import annotations

import random
from typing import Any, NamedTuple

ROOMS = ["Kitchen", "Cellar", "Attic", "Hall", "Library", "Garden", "Study", "Barn", "Tower", "Chapel"]
THINGS = ["lamp", "book", "rope", "apple", "coin", "map", "cup", "hat"]
OPPOSITE = {"north": "south", "south": "north", "east": "west", "west": "east"}
FIRST, MIDDLE, LAST = range(3)
KEY, CHEST = "take key", "open chest"
KEY_WORTH, CHEST_WORTH = 0.3, 0.7
CLUTTER = 0.8
"""Probability that something useless lies in a room."""
MOST_STEPS = 7
"""A perfect search takes at most that many. A player who does anything at random solves one quest of seven."""


class View(NamedTuple):
    """What the player sees and remembers."""

    room: str
    locked: bool
    """Whether a chest is here that can't be opened yet."""
    has_key: bool
    choices: tuple[str, ...]
    """Everything that can be done here."""
    known: dict[str, str]
    """Of each way to go, what the player knows: "new", "seen", or that it leads to the chest."""


class Quest:
    def reset(self, *, seed: int | None = None) -> tuple[View, dict[str, Any]]:
        rng = random.Random(seed)
        self._rooms = rng.sample(ROOMS, 3)
        one, other = rng.sample(list(OPPOSITE), 2)
        self._ways = {
            FIRST: {OPPOSITE[one]: MIDDLE},
            MIDDLE: {one: FIRST, other: LAST},
            LAST: {OPPOSITE[other]: MIDDLE},
        }
        self._key: int | None
        self._key, self._chest = rng.sample(range(3), 2)
        self._things = [rng.choice(THINGS) if rng.random() < CLUTTER else None for _ in self._rooms]
        self._at = rng.randrange(3)
        self._seen = {self._at}
        self._left = MOST_STEPS
        self._rng = rng
        return self._view(), {}

    def step(self, action: str) -> tuple[View, float, bool, bool, dict[str, Any]]:
        """Do something; what can't be done here wastes a step."""
        self._left -= 1
        reward, solved = 0.0, False
        verb, _, what = action.partition(" ")
        if action == KEY and self._key == self._at:
            self._key, reward = None, KEY_WORTH
        elif verb == "go" and what in self._ways[self._at]:
            self._at = self._ways[self._at][what]
            self._seen.add(self._at)
        elif action == CHEST and self._chest == self._at and self._key is None:
            reward, solved = CHEST_WORTH, True
        return self._view(), reward, solved, not solved and not self._left, {}

    def _view(self) -> View:
        known = {f"go {way}": self._known(to) for way, to in self._ways[self._at].items()}
        choices = [*known]
        choices += [KEY] if self._key == self._at else []
        has_key, at_chest = self._key is None, self._chest == self._at
        choices += [CHEST] if at_chest and has_key else []
        choices += [f"look at {thing}"] if (thing := self._things[self._at]) else []
        self._rng.shuffle(choices)
        return View(self._rooms[self._at], at_chest and not has_key, has_key, tuple(choices), known)

    def _known(self, to: int) -> str:
        if to not in self._seen:
            return "new"
        leads_there = self._chest in self._seen and self._chest != self._at and to in (self._chest, MIDDLE)
        return "to the chest" if leads_there else "seen"


def perfect(view: View) -> str:
    """Take the key, open the chest, else go on searching; with the key back to the chest."""
    if KEY in view.choices:
        return KEY
    if CHEST in view.choices:
        return CHEST
    wanted = ("to the chest", "new", "seen") if view.has_key else ("new", "seen", "to the chest")
    return min(view.known, key=lambda way: wanted.index(view.known[way]))
