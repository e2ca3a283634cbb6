"""Fixtures for every test: no socket leaves this machine, no test sees another's home."""

from __future__ import annotations

import signal
import socket
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

import httpx
import pytest
from hypothesis import HealthCheck, settings

from tests.support.patience import within

if TYPE_CHECKING:
    from _pytest.terminal import TerminalReporter

# A machine that is busy with something else is no fault of ours.
settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")

# Of a run in two processes: whatever is started last must be short.
LONGEST_FIRST = (
    "tests/test_kill.py",
    "tests/cli/test_train.py",
    "tests/agents/test_examples.py",
    "tests/test_examples.py",
    "tests/learner/test_cycle.py",
    "tests/proxy/relay/test_formats.py",
    "tests/proxy/log/test_writer.py",
    "tests/parts/desktop/service/test_systemd.py",
    "tests/proxy/test_faults.py",
    "tests/proxy/relay/test_large.py",
    "tests/agents/test_learning.py",
    "tests/learner/test_promote.py",
    "tests/bench/test_measure.py",
    "tests/parts/desktop/service/test_init.py",
    "tests/system/test_heap.py",
    "tests/training/test_gguf_config.py",
    "tests/training/test_loop.py",
    "tests/training/test_anchors.py",
    "tests/training/backends/test_torch_peft.py",
    "tests/bench/test_training.py",
    "tests/page/test_training.py",
    "tests/page/test_live.py",
)

LONG_RUN_S = 60.0
SHOWN_FILES = 15

# A shell that starts us in the background ignores Ctrl-C, and so would every program that a test starts.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Each client of httpx reads all certificate authorities, which takes 15 ms. Tests make thousands of clients.
mock.patch("httpx._transports.default.create_ssl_context", cache(httpx.create_ssl_context)).start()

LOOPBACK = {"127.0.0.1", "::1", "localhost"}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the files that take longest first, and give each test as long as this machine needs."""
    order = {name: place for place, name in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: order.get(item.nodeid.partition("::")[0], len(order)))
    usual_s = float(config.getini("timeout"))
    for item in items:
        limit = item.get_closest_marker("timeout")
        item.add_marker(pytest.mark.timeout(within(limit.args[0] if limit else usual_s)), append=False)


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    """Say which files took longest, what they started for their tests included."""
    took_s: defaultdict[str, float] = defaultdict(float)
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                took_s[report.location[0]] += report.duration
    if sum(took_s.values()) > LONG_RUN_S:
        terminalreporter.section("slowest files")
        for name, seconds in sorted(took_s.items(), key=itemgetter(1), reverse=True)[:SHOWN_FILES]:
            terminalreporter.write_line(f"{seconds:7.1f} s  {name}")


@pytest.fixture(autouse=True)
def loopback_only(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Refuse connections that would leave this machine."""
    connect = socket.socket.connect

    def guarded(self: socket.socket, address: object) -> None:
        if isinstance(address, tuple) and address[0] not in LOOPBACK:
            raise AssertionError(f"a test tried to reach {address[0]}")
        connect(self, address)  # type: ignore[arg-type]

    monkeypatch.setattr(socket.socket, "connect", guarded)
    yield


@pytest.fixture(autouse=True)
def own_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Keep configuration and data of the developer's own burnish out of the tests."""
    monkeypatch.setenv("BURNISH_DATA_DIR", str(tmp_path / "data"))
    for name in ("UPSTREAM", "MODEL", "CONFIG", "ENV_FILE", "URL", "API_KEY", "ADMIN_KEY", "PORT"):
        monkeypatch.delenv(f"BURNISH_{name}", raising=False)
