"""The page as a part: its files, the routes that only it uses, and what open pages are told."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, ClassVar

from starlette.routing import BaseRoute

from burnish.learner.version_details import fates_in
from burnish.parts.core import Core
from burnish.parts.hooks import Part
from burnish.parts.page.events import Events, Sources
from burnish.parts.page.login import login_routes
from burnish.parts.page.routes import page_routes
from burnish.proxy.client_headers import LOCAL_CALLER
from burnish.proxy.feedback.shapes import rows_json
from burnish.proxy.log.batch import Stored
from burnish.proxy.records import Feedback
from burnish.proxy.relay.flight import Flight


class BrowserPage(Part):
    name: ClassVar[str] = "page"
    foreign: ClassVar[bool] = False
    durable: ClassVar[bool] = False

    def __init__(self, flights: Callable[[], Iterable[Flight]]) -> None:
        """``flights`` returns the answers that burnish is giving."""
        self._events = Events(flights)

    async def stop(self) -> None:
        await self._events.close()

    async def use(self, core: Core) -> None:
        self._events.use(_sources(core))

    def routes(self, core: Core) -> Sequence[BaseRoute]:
        return [*page_routes(core.config), *login_routes(core.guard), self._events.route()]

    def stored(self, entry: Stored) -> None:
        self._events.stored(entry)

    def rewarded(self, completion_ids: Collection[str]) -> None:
        self._events.rewarded(completion_ids)

    def imported(self) -> None:
        self._events.all_changed()

    async def rated(self, feedback: Feedback) -> None:
        self._events.rated(feedback)

    async def erased(self, user: str) -> None:
        self._events.erased(user)

    async def reset(self) -> None:
        self._events.all_changed()


def _sources(core: Core) -> Sources:
    """Return what open pages see."""
    log, learning = core.log, core.learning

    async def rows(completion_ids: Collection[str]) -> list[dict[str, Any]]:
        completions = await log.stored_completions(completion_ids)
        is_rated = any(completion.feedback for completion in completions)
        return rows_json(completions, core.rules, await core.fates() if is_rated else fates_in(()))

    async def ended_run(run_id: str) -> dict[str, Any]:
        assert learning  # else there was no run
        return learning.learner.shown(await log.run(run_id))

    return Sources(
        rows=rows,
        covered=log.covered,
        status=lambda: core.status(LOCAL_CALLER),
        run=lambda: learning.learner.status()["run"] if learning and learning.learner.in_run else None,
        ended_run=ended_run,
        versions=lambda: learning and learning.registry.changes(),
    )
