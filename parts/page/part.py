"""The page as a part: its files, the routes that only it uses, and what open pages are told."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from starlette.routing import BaseRoute

from burnish.learner.version_details import fates_in
from burnish.parts.core import Core
from burnish.parts.page.events import Events, Sources
from burnish.parts.page.login import login_routes
from burnish.parts.page.routes import page_routes
from burnish.proxy.client_headers import LOCAL_CALLER
from burnish.proxy.feedback.shapes import rows_json


class BrowserPage(Events):
    name = "page"
    foreign = False
    durable = False

    async def use(self, core: Core) -> None:
        self.see(_sources(core))

    def routes(self, core: Core) -> Sequence[BaseRoute]:
        return [*page_routes(core.config), *login_routes(core.guard), self.route()]


def _sources(core: Core) -> Sources:
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
