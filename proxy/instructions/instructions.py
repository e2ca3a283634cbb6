"""Which instructions are added to a request: those of its caller that the version which answers has not learnt.

The list of a caller is kept in memory and read again after feedback and edits, so that a request costs a look-up.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from burnish.adapters.errors import AdapterError
from burnish.adapters.manifest import BASE_VERSION, AdapterVersion
from burnish.proxy.errors import Unavailable
from burnish.proxy.learner.export import learnt_by
from burnish.proxy.log import Log
from burnish.proxy.log.instructions import MAX_INSTRUCTIONS, wording
from burnish.proxy.records import Instruction

logger = logging.getLogger(__name__)

HEAD = "What the user asked for before, or found wrong with earlier answers:"

# Reading a list takes milliseconds. When the disk hangs, requests go on with the list as it was, …
READ_LIMIT_S = 2.0
# … and only one in this time waits to see whether it still does.
PAUSE_S = 5.0
# Whoever calls names the caller, so there may be any number of them.
CALLERS_KEPT = 10_000

State = Literal["active", "learnt", "displaced"]
"""active: added to the prompt; learnt: the version does it by itself; displaced: there are newer ones enough."""


@dataclass(frozen=True, slots=True)
class Addition:
    """What is added to one system prompt."""

    text: str
    count: int
    """Of instructions."""


@dataclass(frozen=True, slots=True)
class Learnt:
    """What a version has learnt from, its ancestors included."""

    feedback_ids: frozenset[str] = frozenset()
    run_id: str = ""
    """The run that made it; "" for the base model and for models that burnish does not train."""

    def covers(self, instruction: Instruction) -> bool:
        """Return whether an instruction can be left out: it was learnt, and no later feedback repeats it.

        Some of what was said may have been held out of training. Ids sort by time behind their prefix.
        """
        if instruction.by_hand or self.feedback_ids.isdisjoint(instruction.feedback_ids):
            return False
        begun = self.run_id.partition("_")[2]
        return all(
            each in self.feedback_ids or each.partition("_")[2] < begun for each in instruction.feedback_ids
        )


@dataclass(frozen=True, slots=True)
class _Known:
    """A caller's instructions as they were read."""

    changes: int = -1
    """How often they had changed by then."""
    instructions: tuple[Instruction, ...] = ()
    additions: dict[int | None, Addition | None] = field(default_factory=dict)
    """What comes of them, by the version that answers."""


NOTHING = _Known()


class Instructions:
    """The instructions of all callers, as requests need them."""

    def __init__(self, log: Log, versions: Callable[[], Sequence[AdapterVersion]], *, on: bool) -> None:
        """Take the log, what lists all versions on the disk, and whether instructions are added at all."""
        self.on = on
        self._log = log
        self._versions = versions
        self._changes: Counter[str] = Counter()
        self._known: dict[str, _Known] = {}
        self._learnt: dict[int, Learnt] = {}
        self._again_at = 0.0
        """When lists are read again after one could not be, on the monotonic clock."""

    def changed(self, caller: str) -> None:
        """Say that a caller's feedback or instructions have changed, after that was stored."""
        if self.on:
            self._changes[caller] += 1

    async def addition(self, caller: str, version: int | None) -> Addition | None:
        """Return what to add for a caller where a version answers (None: a model that burnish does not train).

        None when there is nothing to add. Never raises: a request must not fail for this.
        """
        known = await self._read(caller)
        if known.instructions and version not in known.additions:
            known.additions[version] = addition(states(known.instructions, await self.learnt(version)))
        return known.additions.get(version)

    async def listed(self, caller: str, version: int | None) -> list[tuple[Instruction, State]]:
        """Return all that a caller instructions, also while it is off."""
        return states(await self._log.instructions(caller), await self.learnt(version))

    async def status(self, caller: str, version: int | None) -> dict[str, Any]:
        """Return whether it is on, and how many instructions are added, or would be."""
        added = addition(await self.listed(caller, version))
        return {"on": self.on, "count": added.count if added else 0}

    async def learnt(self, version: int | None) -> Learnt:
        """Return what a version has learnt; nothing for the base model and for other models."""
        if version is None or version == BASE_VERSION:
            return Learnt()
        if version not in self._learnt:
            try:
                versions = await asyncio.to_thread(self._versions)
            except (AdapterError, OSError) as error:
                logger.warning("what version %d has learnt cannot be read: %s", version, error)
                return Learnt()
            manifests = {each.number: each.manifest for each in versions}
            if version not in manifests:
                return Learnt()
            # A version never changes, so this is asked once.
            self._learnt[version] = Learnt(learnt_by(version, manifests), manifests[version].run_id)
        return self._learnt[version]

    async def _read(self, caller: str) -> _Known:
        changes = self._changes[caller]
        known = self._known.get(caller, NOTHING)
        if known.changes == changes or time.monotonic() < self._again_at:
            return known
        try:
            async with asyncio.timeout(READ_LIMIT_S):
                instructions = await self._log.instructions_at_once(caller)
        except (Unavailable, TimeoutError) as error:
            reason = str(error) or f"not read within {READ_LIMIT_S:g} s"
            logger.warning("the instructions of %r are used as they were: %s", caller, reason)
            self._again_at = time.monotonic() + PAUSE_S
            return known
        if len(self._known) >= CALLERS_KEPT:
            self._known.clear()
            self._changes.clear()
        known = self._known[caller] = _Known(changes, tuple(instructions))
        return known


def states(instructions: Sequence[Instruction], learnt: Learnt) -> list[tuple[Instruction, State]]:
    """Pair each instruction with its state. ``instructions``: latest first; those added by hand take precedence."""
    state: dict[str, State] = {}
    active: set[str] = set()
    for instruction in sorted(instructions, key=lambda instruction: not instruction.by_hand):
        said = wording(instruction.text)
        if learnt.covers(instruction):
            state[instruction.id] = "learnt"
        elif len(active) == MAX_INSTRUCTIONS or said in active:
            state[instruction.id] = "displaced"
        else:
            active.add(said)
            state[instruction.id] = "active"
    return [(instruction, state[instruction.id]) for instruction in instructions]


def addition(instructions: Sequence[tuple[Instruction, State]]) -> Addition | None:
    """Return the text of the active instructions; None when there is none.

    The earliest comes first, so that saying something again, or something new, leaves the text before it as it was.
    """
    active = sorted(
        (instruction for instruction, state in instructions if state == "active"),
        key=lambda instruction: instruction.first_at,
    )
    if not active:
        return None
    return Addition("\n".join([HEAD, *(f"- {instruction.text}" for instruction in active)]), len(active))
