"""Picks two versions that a person compares, and has both answer a prompt."""

from __future__ import annotations

import asyncio
import secrets
import time

from starlette.types import ASGIApp

from burnish.adapters.manifest import BASE_VERSION
from burnish.adapters.registry import version_label, waiting
from burnish.learner.learning import Engine
from burnish.proxy.http.errors import Conflict, Unavailable
from burnish.proxy.ids import duel_id
from burnish.proxy.log import Log
from burnish.proxy.log.duels import SAMPLED_FOR_DUELS, Duel
from burnish.proxy.relay.inside import Answer, Asker, NoAnswer, ask

# A person asks several prompts one after the other, and loading a large version takes seconds.
UNLOAD_AFTER_S = 300.0
# Enough to judge by. A small model that never ends would otherwise keep the person waiting.
MAX_TOKENS = 1024
DECIDED = frozenset({"verdict", "awaits"})
"""In the details of the event after which a candidate isn't judged any more."""


class Contest:
    """The versions of one engine."""

    def __init__(self, log: Log, engine: Engine, relay: ASGIApp) -> None:
        """``relay`` answers requests as for any client."""
        self._log = log
        self._relay = relay
        self._registry = engine.swap.registry
        self.leases = engine.leases
        self.base_digest = engine.swap.host.base_digest

    async def ask(self, prompt: str, asker: Asker) -> Duel | str:
        """Ask the live version and the one to compare it with; return what both say if it is the same.

        Raises Conflict, Unavailable.
        """
        contenders = await asyncio.to_thread(self.contenders)
        if contenders is None:
            raise Conflict(
                "there is no second version to ask yet. Rate some answers: a training run makes a version, which can "
                "be asked as soon as it has been tested",
                code="no_version",
            )
        _, rival = contenders
        left_version, right_version = contenders if secrets.randbits(1) else reversed(contenders)
        began = time.time()
        must_load = rival != BASE_VERSION  # which answers beside any version
        if must_load:
            await self.leases.hold(rival)
        try:
            left, right = await asyncio.gather(
                self._ask(left_version, prompt, asker), self._ask(right_version, prompt, asker)
            )
        finally:
            if must_load:
                self.leases.release(rival, UNLOAD_AFTER_S)
        if left.text == right.text:
            return left.text
        answers = left.completion_id, right.completion_id
        return Duel(duel_id(), began, asker.caller, left_version, right_version, *answers)

    async def _ask(self, version: int, prompt: str, asker: Asker) -> Answer:
        """Ask a version, and look in the log whether the answer came from it. Raises Conflict, Unavailable."""
        request = {
            "model": self.leases.name(version),
            "messages": [{"role": "user", "content": prompt}],
            "max_tokens": MAX_TOKENS,
        }
        try:
            # Apart from the sessions of agents, in which the person may rate "the last answer".
            answer = await ask(self._relay, request, asker, session=SAMPLED_FOR_DUELS)
        except NoAnswer as error:
            raise Conflict(
                f"one of the versions didn't answer the prompt ({error}): try another prompt",
                code="prompt_refused",
            ) from error
        if not answer.text.strip():
            raise Conflict(
                "one of the versions gave an empty answer: try another prompt", code="empty_answer"
            )
        answering_version = (await self._log.completion(answer.completion_id)).served.adapter_version
        if answering_version != version:
            answerer = "an unknown one" if answering_version is None else version_label(answering_version)
            raise Unavailable(
                f"{version_label(version)} was asked, but {answerer} answered: the engine may have been restarted. "
                "Try again"
            )
        return answer

    def contenders(self) -> tuple[int, int] | None:
        """Return the live version, and the one whose comparison with it says most; None if there is none."""
        live, versions = self._registry.live(), self.leases.versions()
        comparable = [
            version
            for version in versions.values()
            if version.state != "candidate" or self._is_decided(version.number)
        ]
        latest = sorted((version.number for version in comparable), reverse=True)
        candidates = [number for number in latest if versions[number].state == "candidate"]
        preferences = (
            waiting(self._registry),
            *candidates,
            self._registry.previous_live(),
            BASE_VERSION,
            *latest,
        )
        askable = {BASE_VERSION, *versions} - {live}
        rival = next((number for number in preferences if number in askable), None)
        return None if rival is None else (live, rival)

    def _is_decided(self, number: int) -> bool:
        return any(event.details.keys() & DECIDED for event in self._registry.events(number))
