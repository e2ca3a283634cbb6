"""Adds a caller's instructions to the system prompt of a request, once it is known which version answers."""

from __future__ import annotations

from functools import partial

from starlette.types import Scope

from burnish.proxy.access.access import comment_keys, identity_of
from burnish.proxy.instructions.instructions import Instructions
from burnish.proxy.relay.flight import Flight
from burnish.proxy.relay.inside import UNLOGGED
from burnish.proxy.relay.large import reading, with_system
from burnish.proxy.relay.steps import Outgoing, Step
from burnish.proxy.surfaces import SURFACES
from burnish.system.apart import WorkerProcess


class AddInstructions(Step):
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
        addition = await self._instructions.addition(flight.asked.caller, outgoing.target.version, keys)
        flight.instruction_count = 0 if addition else None
        if addition is None or flight.as_sent:
            return
        extend = partial(with_system, SURFACES[flight.asked.surface], outgoing.body, addition.text)
        extended = await reading(self._apart, extend) if outgoing.named_at is not None else extend()
        if extended is not None:
            outgoing.body, outgoing.named_at = extended
            flight.instructions, flight.instruction_count = addition.text, addition.count
