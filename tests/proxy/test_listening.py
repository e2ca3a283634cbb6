"""Where burnish listens: for itself, and for the engine's own page."""

from __future__ import annotations

import socket

import pytest

from burnish.config.config import Config, load_config
from burnish.proxy.http.errors import ConfigError
from burnish.proxy.listening import bound, for_engine_page


def config(page_port: int) -> Config:
    settings = {"port": 0, "upstream": "http://127.0.0.1:1", "engine_page_port": page_port}
    return load_config(settings, environment={})


def test_the_engines_own_page_has_the_port_that_was_set() -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        wanted = config(port)
        refused = pytest.raises(ConfigError, match=f":{port} .*pick another engine_page_port")
        with bound(wanted) as main, refused:
            with for_engine_page(wanted, main):
                pass
    with bound(wanted) as main, for_engine_page(wanted, main) as page:
        assert page
        assert page.getsockname()[1] == port
