"""Promotes and rolls back versions, and knows those that the gate hasn't judged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from burnish.adapters.errors import AdapterError, EngineError, UnknownVersion
from burnish.adapters.manifest import BASE_VERSION, AdapterVersion
from burnish.adapters.registry import PASSED_AGAINST, Registry, passed, version_label, waiting
from burnish.adapters.swap import Swap
from burnish.learner.cycle import Conclusion, Ending
from burnish.proxy.http.errors import Conflict, NotFound, Unavailable


class Promoted(NamedTuple):
    version: int
    proof: str | None
    """Why the gate let it pass; None if it didn't."""
    note: str | None
    """What that doesn't cover."""

    def in_words(self) -> str:
        text = f"{version_label(self.version)} is live now" + (f", {self.proof}" if self.proof else "")
        return f"{text}. {self.note}" if self.note else text


@dataclass(frozen=True, slots=True)
class Versions:
    _registry: Registry
    _swap: Swap

    async def promote(self, number: int | None, reason: str, *, force: bool) -> Promoted:
        """Make a version live (None: the one that waits; 0: the base model).

        With ``force`` even one that was rejected or not judged. Raises NotFound, Conflict, Unavailable.
        """
        if number is None:
            number = self._must_wait().number
        version = self._get(number)
        if version and not force:
            if version.state == "rejected":
                why = version.reason.removesuffix(".")
                raise Conflict(
                    f"{version_label(number)} was rejected: {why}. To promote it anyway: "
                    f"burnish adapters promote {version_label(number)} --force",
                    code="rejected",
                )
            if self._unjudged(version):
                raise Conflict(
                    f"{version_label(number)} has not been judged yet: wait until its run has ended",
                    code="not_judged",
                )
        previous, event = self._registry.live(), passed(self._registry, number)
        await self._go_live(version, reason)
        if version is None or event is None or version.state != "candidate":
            return Promoted(number, None, None)
        note = None
        if event.details[PASSED_AGAINST] != previous:
            note = f"Nobody has compared it with {version_label(previous)}, which it replaced"
        return Promoted(number, event.reason.removesuffix("."), note)

    def waiting(self) -> AdapterVersion | None:
        """Return the version that passed the gate and waits to be promoted, if the engine's model is still its base."""
        try:
            number = waiting(self._registry)
            version = None if number is None else self._registry.get(number)
        except AdapterError:
            return None  # reconciling reports the damage
        fits = version and version.manifest.base_digest == self._swap.host.base_digest
        return version if fits else None

    def _must_wait(self) -> AdapterVersion:
        if version := self.waiting():
            return version
        words, candidates = "no version waits to be promoted", self._judged()
        if candidates:
            label = version_label(candidates[-1].number)
            words += (
                f". {label} is a candidate, but not known to be better than the live version; "
                f"to use it all the same: burnish adapters promote {label}"
            )
        raise Conflict(words, code="nothing_waits")

    async def rollback(self, to: int | None, reason: str) -> int:
        """Make an earlier live version live again (None: the previous one); return its number.

        Raises NotFound, Conflict, Unavailable.
        """
        if to is None and (to := self._registry.previous_live()) is None:
            raise Conflict("the base model is live: there is nothing to go back to", code="nothing_to_undo")
        version = self._get(to)
        if version and version.state in ("candidate", "rejected"):
            raise Conflict(
                f"{version_label(to)} was never live ({version.state}): promote it instead", code="never_live"
            )
        await self._go_live(version, reason)
        return to

    def _judged(self) -> list[AdapterVersion]:
        candidates = [version for version in self._registry.versions() if version.state == "candidate"]
        return [candidate for candidate in candidates if not self._unjudged(candidate)]

    def check_candidate(self, number: int) -> None:
        """Raise NotFound or Conflict if there is no such candidate."""
        version = self._get(number)
        state = version.state if version else "live"
        if state != "candidate":
            raise Conflict(
                f"{version_label(number)} is no candidate, but {state}: only candidates can be judged",
                code="no_candidate",
            )

    def unjudged(self) -> list[AdapterVersion]:
        """Return the candidates that the gate hasn't judged, oldest first. Raises CorruptAdapter."""
        return [version for version in self._registry.versions() if self._unjudged(version)]

    def give_up_unjudged(self, reason: str) -> None:
        """Reject the candidates that the gate hasn't judged. Raises AdapterError, OSError."""
        for version in self.unjudged():
            self.give_up(version, reason)

    def give_up_open(self, reason: str) -> None:
        """Reject the candidates that the gate hasn't judged, and those that wait. Raises AdapterError, OSError."""
        self.give_up_unjudged(reason)
        while version := self.waiting():
            self.give_up(version, reason)

    def give_up(self, version: AdapterVersion, reason: str) -> None:
        self._registry.record(version.number, "rejected", reason)

    def verdict(self, number: int) -> Conclusion | None:
        """Return what became of a version in its run; None if that isn't known."""
        try:
            version = self._registry.get(number)
        except AdapterError:
            return None
        endings: dict[str, Ending] = {"live": "live", "retired": "live", "rejected": "rejected"}
        if self._unjudged(version):
            return None
        return Conclusion(endings.get(version.state, "candidate"), version.reason, number)

    def _unjudged(self, version: AdapterVersion) -> bool:
        events = self._registry.events(version.number)
        decided = any(event.details.keys() & {"verdict", "awaits"} for event in events)
        return version.state == "candidate" and not decided

    async def _go_live(self, version: AdapterVersion | None, reason: str) -> None:
        try:
            await self._swap.go_live(version, reason)
        except EngineError as error:
            raise Unavailable(f"{error}; nothing was changed", code="engine_error") from error
        except (AdapterError, OSError) as error:
            raise Conflict(f"{error}; nothing was changed", code="not_servable") from error

    def _get(self, number: int) -> AdapterVersion | None:
        try:
            return None if number == BASE_VERSION else self._registry.get(number)
        except UnknownVersion as error:
            raise NotFound(str(error), code="unknown_version") from error
        except AdapterError as error:
            raise Conflict(str(error), code="not_servable") from error
