"""Data in and out as a part."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from starlette.routing import BaseRoute

from burnish.parts.core import Core
from burnish.parts.datasets.routes import record_routes
from burnish.parts.hooks import Part


class Datasets(Part):
    name: ClassVar[str] = "datasets"
    foreign: ClassVar[bool] = False

    def routes(self, core: Core) -> Sequence[BaseRoute]:
        return record_routes(core.log, core.on_imported, core.rules)
