"""Picks two versions that a person compares, and has both answer a prompt."""

from __future__ import annotations

import asyncio
import secrets
import time
from typing import NamedTuple

from starlette.types import ASGIApp

from burnish.adapters.errors import AdapterError
from burnish.adapters.manifest import BASE_VERSION, AdapterVersion
from burnish.adapters.registry import Registry, version_label
from burnish.adapters.swap import Swap
from burnish.adapters.waiting import waiting
from burnish.parts.duels.asking import DuelCaller, VersionAnswer, ask
from burnish.proxy.http.errors import Conflict, Unavailable
from burnish.proxy.ids import duel_id
from burnish.proxy.log import Log
from burnish.proxy.log.duels import Duel

# A person asks several prompts one after the other, and loading a large version takes seconds.
LEND_S = 300.0
GONE_STATES = ("rejected", "pruned")
DECIDED = frozenset({"verdict", "awaits"})
"""In the details of the event after which a candidate isn't judged any more."""


class Asking(NamedTuple):
    duel: Duel | None
    """None: both versions answered the same."""
    text: str
    """The answer of one of them."""


class Contest:
    """The versions of one engine."""

    def __init__(self, log: Log, swap: Swap, upstream: str, relay: ASGIApp) -> None:
        """``upstream``: its name in the log. ``relay``: answers requests as for any client."""
        self._log = log
        self._swap = swap
        self._relay = relay
        self.upstream = upstream
        self._lent: dict[int, asyncio.TimerHandle] = {}
        """Versions that were only loaded to be asked."""

    @property
    def registry(self) -> Registry:
        return self._swap.registry

    @property
    def base_digest(self) -> str:
        return self._swap.host.base_digest

    def named(self, version: int) -> str:
        """Return the model name that means one version."""
        return f"{self._swap.host.base_model}@{'base' if version == BASE_VERSION else f'v{version}'}"

    def versions(self) -> dict[int, AdapterVersion]:
        """Return the versions that may be compared, by number: not those of another base, rejected or deleted."""
        return {
            version.number: version
            for version in self.registry.versions()
            if version.state not in GONE_STATES and version.manifest.base_digest == self.base_digest
        }

    async def ask(self, prompt: str, asker: DuelCaller) -> Asking:
        """Ask the live version and the one to compare it with. Raises Conflict, Unavailable."""
        contenders = await asyncio.to_thread(self.contenders)
        if contenders is None:
            raise Conflict(
                "there is no second version to ask yet. Rate some answers: a training run makes a version, which can "
                "be asked as soon as it has been tested",
                code="no_version",
            )
        live, rival = contenders
        await self._load(rival)
        sides = (live, rival) if secrets.randbits(1) else (rival, live)
        began = time.time()
        left_answer, right_answer = await asyncio.gather(
            *(ask(self._relay, self.named(version), prompt, asker) for version in sides)
        )
        await self._check([(left_answer, sides[0]), (right_answer, sides[1])])
        if left_answer.text == right_answer.text:
            return Asking(None, left_answer.text)
        duel = Duel(
            duel_id(),
            began,
            asker.caller,
            sides[0],
            sides[1],
            left_answer.completion_id,
            right_answer.completion_id,
        )
        return Asking(duel, left_answer.text)

    def contenders(self) -> tuple[int, int] | None:
        """Return the live version, and the one whose comparison with it says most; None if there is none."""
        live, versions = self.registry.live(), self.versions()
        comparable = [
            version
            for version in versions.values()
            if version.state != "candidate" or self._is_decided(version.number)
        ]
        latest = sorted((version.number for version in comparable), reverse=True)
        candidates = [number for number in latest if versions[number].state == "candidate"]
        preferences = (
            waiting(self.registry),
            *candidates,
            self.registry.previous_live(),
            BASE_VERSION,
            *latest,
        )
        askable = {BASE_VERSION, *versions} - {live}
        rival = next((number for number in preferences if number in askable), None)
        return None if rival is None else (live, rival)

    def _is_decided(self, number: int) -> bool:
        return any(event.details.keys() & DECIDED for event in self.registry.events(number))

    async def _load(self, number: int) -> None:
        """Load a version, unless it is; it is unloaded when nobody has asked it for a while. Raises Unavailable."""
        resident = number in self._swap.route.resident()
        if number == BASE_VERSION or (resident and number not in self._lent):
            return
        if not resident:
            try:
                await self._swap.stage(await asyncio.to_thread(self.registry.get, number))
            except (AdapterError, OSError) as error:
                raise Unavailable(
                    f"{version_label(number)} can't be loaded to answer: {error}. Try again when no training run is "
                    "under way"
                ) from error
        if earlier := self._lent.pop(number, None):
            earlier.cancel()
        self._lent[number] = asyncio.get_running_loop().call_later(LEND_S, self._give_back, number)

    def _give_back(self, number: int) -> None:
        self._lent.pop(number, None)
        # A reset may have unloaded it, and it may have gone live.
        if number in self._swap.route.resident() and self.registry.live() != number:
            self._swap.retire(number)

    async def _check(self, answers: list[tuple[VersionAnswer, int]]) -> None:
        """Look in the log whether each answer came from its version. Raises Unavailable."""
        for answer, version in answers:
            answering_version = (await self._log.completion(answer.completion_id)).served.adapter_version
            if answering_version != version:
                answerer = "an unknown one" if answering_version is None else version_label(answering_version)
                raise Unavailable(
                    f"{version_label(version)} was asked, but {answerer} answered: the engine may have been restarted. "
                    "Try again"
                )
