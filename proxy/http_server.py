"""The HTTP server, as every process of ours runs it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import uvicorn

from burnish.proxy.asgi import App

# Streams that are still running when burnish is told to stop get this long to end by themselves.
GRACE_S = 5


def http_server(app: App) -> uvicorn.Server:
    """Return a server that is ready to ``serve``."""
    logging.getLogger("uvicorn.error").addFilter(_not_a_cut)
    return uvicorn.Server(
        uvicorn.Config(
            app,
            lifespan="off",
            log_level="warning",
            access_log=False,
            date_header=False,
            server_header=False,
            proxy_headers=False,  # nothing here asks who the client is
            timeout_graceful_shutdown=GRACE_S,
        )
    )


def event_loop() -> Callable[[], asyncio.AbstractEventLoop]:
    """Return what makes an event loop."""
    try:
        import uvloop
    except ImportError:  # Windows
        return asyncio.new_event_loop
    return uvloop.new_event_loop


def _not_a_cut(record: logging.LogRecord) -> bool:
    """The relay returns early on purpose when an upstream breaks off; the log of completions has it."""
    return "returned without completing response" not in record.getMessage()
