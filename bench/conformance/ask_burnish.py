"""A plugin for pytest: clients of pytest-httpserver ask burnish, which asks the server.

Runs in the suite's environment.
"""

from __future__ import annotations

import os

from pytest_httpserver import HTTPServer  # type: ignore[import-not-found]  # the suite's own environment has it

HTTPServer.url_for = lambda self, suffix: (
    os.environ["BURNISH_URL"] + (suffix if suffix.startswith("/") else f"/{suffix}")
)
