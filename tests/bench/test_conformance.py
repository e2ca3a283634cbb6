"""What the bench of vendors' suites calls a difference, on a suite that runs here."""

from __future__ import annotations

import urllib.request
from pathlib import Path

import pytest

from bench.conformance import __main__ as conformance
from bench.conformance.recording import recording
from bench.conformance.suites import CannotRun, Suite, Taken


class Small(Suite):
    """One test and one request each way."""

    name = "small"
    needed = True

    def __init__(self, path_through: str = "/v1/x", outcome_through: str = "passed") -> None:
        self._paths = {False: "/v1/x", True: path_through}
        self._outcomes = {False: "passed", True: outcome_through}

    def install(self, checkout: Path, home: Path) -> None:
        if (checkout / "broken").exists():
            raise CannotRun("it is broken")

    def run(self, checkout: Path, home: Path, folder: Path, *, through: bool) -> Taken:
        with recording() as upstream:
            urllib.request.urlopen(upstream.url + self._paths[through], data=b"{}").close()
        return Taken({"test": self._outcomes[through]}, tuple(upstream.requests))


@pytest.mark.parametrize(
    ("suite", "same", "said"),
    [
        (Small(), True, "0, 0 of 1"),
        (Small(outcome_through="failed"), False, "test: passed, through burnish failed"),
        (Small("/v1/y"), False, "only through burnish: POST /v1/y"),
    ],
)
def test_a_test_or_a_request_that_differs_is_named(
    suite: Suite, same: bool, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert conformance.compared(suite, tmp_path) is same
    assert said in capsys.readouterr().out


def test_a_suite_that_cannot_run_is_no_success(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert not conformance.compared(Small(), tmp_path / "nowhere")
    (tmp_path / "broken").touch()
    assert not conformance.compared(Small(), tmp_path)
    assert "can't run: it is broken" in capsys.readouterr().out
