"""Chooses the instructions for a request: those of its caller that the answering version hasn't learnt.

The list of a caller is cached, and read again after feedback and edits.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from starlette.types import Scope

from burnish.adapters.errors import AdapterError
from burnish.adapters.manifest import BASE_VERSION, AdapterVersion, learnt_by
from burnish.proxy.access.access import CommentKeys, comment_keys, identity_of
from burnish.proxy.http.errors import Unavailable
from burnish.proxy.log import Log
from burnish.proxy.log.instructions import MAX_INSTRUCTIONS, wording
from burnish.proxy.records import Instruction
from burnish.proxy.relay.flight import Flight
from burnish.proxy.relay.inside import UNLOGGED
from burnish.proxy.relay.large import reading, with_system
from burnish.proxy.relay.steps import Outgoing, Step
from burnish.proxy.surfaces import SURFACES
from burnish.system.apart import WorkerProcess

logger = logging.getLogger(__name__)

HEAD = "What the user asked for before, or found wrong with earlier answers:"

# Reading a list takes milliseconds. If the disk hangs, requests go on with the cached list, …
READ_LIMIT_S = 2.0
# … and only one request in this time tries again.
PAUSE_S = 5.0
# Clients choose the name of the caller, so there may be any number of them.
CALLERS_KEPT = 10_000

State = Literal["active", "learnt", "displaced"]
"""active: added to the prompt; learnt: the version has learnt it; displaced: enough newer ones are active."""


@dataclass(frozen=True, slots=True)
class Addition:
    text: str
    count: int
    """Number of instructions."""


@dataclass(frozen=True, slots=True)
class LearntFeedback:
    """The feedback that a version and its ancestors have learnt from."""

    feedback_ids: frozenset[str] = frozenset()
    run_id: str = ""
    """The run that made the version; "" for the base model and for models that burnish doesn't train."""

    def covers(self, instruction: Instruction) -> bool:
        """Return whether an instruction was learnt and no later feedback repeats it.

        Some of its feedback may have been held out of training. IDs without their prefix sort by time.
        """
        if instruction.by_hand or self.feedback_ids.isdisjoint(instruction.feedback_ids):
            return False
        run_start = self.run_id.partition("_")[2]
        return all(
            feedback_id in self.feedback_ids or feedback_id.partition("_")[2] < run_start
            for feedback_id in instruction.feedback_ids
        )


@dataclass(frozen=True, slots=True)
class _CachedList:
    changes: int = -1
    """The number of changes when they were read."""
    instructions: tuple[Instruction, ...] = ()
    additions: dict[int | None, Addition | None] = field(default_factory=dict)
    """By answering version."""


NOTHING = _CachedList()


class Instructions:
    def __init__(self, log: Log, versions: Callable[[], Sequence[AdapterVersion]], *, on: bool) -> None:
        """``versions`` returns all versions on the disk. ``on``: add instructions to requests."""
        self.on = on
        self._log = log
        self._versions = versions
        self._changes: Counter[str] = Counter()
        self._known: dict[tuple[str, CommentKeys], _CachedList] = {}
        self._learnt: dict[int, LearntFeedback] = {}
        self._again_at = 0.0
        """When lists are read again after a failure, on the monotonic clock."""

    def changed(self, caller: str) -> None:
        """Call this after a change in the feedback or instructions of a caller was stored."""
        if self.on:
            self._changes[caller] += 1

    def all_changed(self) -> None:
        """Call this after a change in the feedback of all callers was stored."""
        for caller in {caller for caller, _ in self._known}:
            self.changed(caller)

    async def addition(self, caller: str, version: int | None, comment_keys: CommentKeys) -> Addition | None:
        """Return the addition for a caller, or None if there is none; never raises.

        ``version``: the one that answers; None for a model that burnish doesn't train. ``comment_keys``: the keys with
        which a comment must have come.
        """
        cached_list = await self._read(caller, comment_keys)
        if cached_list.instructions and version not in cached_list.additions:
            cached_list.additions[version] = addition(
                states(cached_list.instructions, await self.learnt(version))
            )
        return cached_list.additions.get(version)

    async def listed(self, caller: str, version: int | None) -> list[tuple[Instruction, State]]:
        """Return all instructions of a caller, also while none are added."""
        return states(await self._log.instructions(caller), await self.learnt(version))

    async def status(self, caller: str, version: int | None) -> dict[str, Any]:
        """Return whether instructions are added, and how many there are to add."""
        prompt_addition = addition(await self.listed(caller, version))
        return {"on": self.on, "count": prompt_addition.count if prompt_addition else 0}

    async def learnt(self, version: int | None) -> LearntFeedback:
        """Return the feedback behind a version; none for the base model and other models."""
        if version is None or version == BASE_VERSION:
            return LearntFeedback()
        if version not in self._learnt:
            try:
                versions = await asyncio.to_thread(self._versions)
            except (AdapterError, OSError) as error:
                logger.warning(
                    "the feedback that version %d has learnt from cannot be read: %s", version, error
                )
                return LearntFeedback()
            manifests = {adapter.number: adapter.manifest for adapter in versions}
            if version not in manifests:
                return LearntFeedback()
            # A version never changes.
            self._learnt[version] = LearntFeedback(learnt_by(version, manifests), manifests[version].run_id)
        return self._learnt[version]

    async def _read(self, caller: str, comment_keys: CommentKeys) -> _CachedList:
        changes = self._changes[caller]
        cached_list = self._known.get((caller, comment_keys), NOTHING)
        if cached_list.changes == changes or time.monotonic() < self._again_at:
            return cached_list
        try:
            async with asyncio.timeout(READ_LIMIT_S):
                instructions = await self._log.instructions_at_once(caller, comment_keys)
        except (Unavailable, TimeoutError) as error:
            reason = str(error) or f"not read within {READ_LIMIT_S:g} s"
            logger.warning(
                "the instructions of %r could not be read again, so the cached ones are used: %s",
                caller,
                reason,
            )
            self._again_at = time.monotonic() + PAUSE_S
            return cached_list
        if len(self._known) >= CALLERS_KEPT:
            self._known.clear()
            self._changes.clear()
        cached_list = self._known[caller, comment_keys] = _CachedList(changes, tuple(instructions))
        return cached_list


def states(
    instructions: Sequence[Instruction], learnt_feedback: LearntFeedback
) -> list[tuple[Instruction, State]]:
    """Pair each instruction (latest first) with its state. Those added by hand take precedence."""
    state: dict[str, State] = {}
    active: set[str] = set()
    for instruction in sorted(instructions, key=lambda instruction: not instruction.by_hand):
        words = wording(instruction.text)
        if learnt_feedback.covers(instruction):
            state[instruction.id] = "learnt"
        elif len(active) == MAX_INSTRUCTIONS or words in active:
            state[instruction.id] = "displaced"
        else:
            active.add(words)
            state[instruction.id] = "active"
    return [(instruction, state[instruction.id]) for instruction in instructions]


def addition(instructions: Sequence[tuple[Instruction, State]]) -> Addition | None:
    """Return the text of the active instructions, earliest first; None if there are none.

    A new or repeated instruction then leaves the beginning of the prompt unchanged, which engines have cached.
    """
    active = sorted(
        (instruction for instruction, state in instructions if state == "active"),
        key=lambda instruction: instruction.first_at,
    )
    if not active:
        return None
    return Addition("\n".join([HEAD, *(f"- {instruction.text}" for instruction in active)]), len(active))


class AddInstructions(Step):
    """Adds a caller's instructions to the system prompt, once it is known which version answers."""

    def __init__(self, instructions: Instructions, child: WorkerProcess) -> None:
        self._instructions = instructions
        self._apart = child

    def concerns_target(self, flight: Flight, scope: Scope) -> bool:
        return self._instructions.on and not scope.get(UNLOGGED)

    async def with_target(self, outgoing: Outgoing) -> None:
        """Extend the body, if its format has a place for instructions: the same JSON, other bytes."""
        flight = outgoing.flight
        flight.instructions = None
        keys = comment_keys(identity_of(outgoing.scope))
        prompt_addition = await self._instructions.addition(
            flight.asked.caller, outgoing.target.version, keys
        )
        flight.instruction_count = 0 if prompt_addition else None
        if prompt_addition is None or flight.as_sent:
            return
        extend = partial(with_system, SURFACES[flight.asked.surface], outgoing.body, prompt_addition.text)
        extended = await reading(self._apart, extend) if outgoing.named_at is not None else extend()
        if extended is not None:
            outgoing.body, outgoing.named_at = extended
            flight.instructions, flight.instruction_count = prompt_addition.text, prompt_addition.count
