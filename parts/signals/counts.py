"""Reads from the output of test runners how many tests passed. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import NamedTuple


class RunCounts(NamedTuple):
    runner: str
    passed: int
    failed: int
    """Errors and crashes too."""
    skipped: int = 0
    left_out: int = 0
    """Deselected, filtered out."""
    unit: str = "test"

    @property
    def ran(self) -> int:
        return self.passed + self.failed

    def in_words(self) -> str:
        several = self.unit if self.passed == 1 else f"{self.unit}s"
        return f"{self.passed} {several} passed, {self.failed} failed ({self.runner})"


COUNT = re.compile(r"(\d+) ([a-z]+)")
PYTEST = re.compile(
    r"^=*[ ]*(no tests ran|(?:\d+ "
    r"(?:passed|failed|errors?|skipped|deselected|xfailed|xpassed|warnings?|rerun|subtests passed)(?:, )?)+)"
    r" in \d[\d.:]*\s?(?:s|\()",
    re.MULTILINE,
)
UNITTEST = re.compile(r"^Ran (\d+) tests? in [\d.]+s\s+(OK|FAILED)(?: \(([^)\n]*)\))?", re.MULTILINE)
DETAIL = re.compile(r"([a-z ]+)=(\d+)")
JEST_SUITES = re.compile(r"^Test Suites: +(.*)$", re.MULTILINE)
JEST = re.compile(r"^Tests: +(.*\d+ total)$", re.MULTILINE)
VITEST_FILES = re.compile(r"^ *Test Files +(.*\(\d+\))", re.MULTILINE)
VITEST = re.compile(r"^ *Tests +(.*\(\d+\))", re.MULTILINE)
GO_PACKAGE = re.compile(r"^(ok|FAIL)[ \t]+(\S+)[ \t]*(.*)$", re.MULTILINE)
GO_TEST = re.compile(r"^ *--- (PASS|FAIL|SKIP): ", re.MULTILINE)
CARGO = re.compile(
    r"^test result: (?:ok|FAILED)\. (\d+) passed; (\d+) failed; (\d+) ignored; \d+ measured; (\d+) filtered out",
    re.MULTILINE,
)
CARGO_FAILED = re.compile(r"^error: (?:test failed|\d+ targets? failed|could not compile)", re.MULTILINE)


def counts_in(output: str) -> RunCounts | None:
    """Return what the output of one command says; None if it says nothing, or several runners speak."""
    runs = [counts for reader in READERS if (counts := reader(output))]
    return runs[0] if len(runs) == 1 else None


def _named(text: str) -> Counter[str]:
    """Read ``1 failed, 2 passed``."""
    counts = Counter[str]()
    for count, name in COUNT.findall(text):
        counts[name.removesuffix("s") if name.startswith("error") else name] += int(count)
    return counts


def _pytest(output: str) -> RunCounts | None:
    # More than one: something else printed what looks like a summary.
    if len(summaries := PYTEST.findall(output)) != 1:
        return None
    counts = _named(summaries[0])
    failed = counts["failed"] + counts["error"]
    skipped = counts["skipped"] + counts["xfailed"]
    return RunCounts("pytest", counts["passed"] + counts["xpassed"], failed, skipped, counts["deselected"])


def _unittest(output: str) -> RunCounts | None:
    if len(summaries := UNITTEST.findall(output)) != 1:
        return None
    ran, verdict, details = summaries[0]
    counts = {name.strip(): int(count) for name, count in DETAIL.findall(details)}
    failed = sum(counts.get(name, 0) for name in ("failures", "errors", "unexpected successes"))
    skipped = counts.get("skipped", 0) + counts.get("expected failures", 0)
    failed = max(failed, 1) if verdict == "FAILED" else failed
    return RunCounts("unittest", max(0, int(ran) - failed - skipped), failed, skipped)


def _javascript(runner: str, tests: re.Pattern[str], files: re.Pattern[str], output: str) -> RunCounts | None:
    if len(summaries := tests.findall(output)) != 1:
        return None
    counts, of_files = _named(summaries[0]), _named("".join(files.findall(output)[:1]))
    # A file that can't be loaded has no tests that could fail.
    failed = max(counts["failed"], of_files["failed"])
    return RunCounts(runner, counts["passed"], failed, counts["skipped"] + counts["todo"])


def _go(output: str) -> RunCounts | None:
    packages = [package for package in GO_PACKAGE.findall(output) if "[no test" not in package[2]]
    tests = Counter(GO_TEST.findall(output))
    if not packages:
        return None
    verdicts = Counter(verdict for verdict, *_ in packages)
    if tests["PASS"]:
        return RunCounts("go test", tests["PASS"], max(tests["FAIL"], verdicts["FAIL"]), tests["SKIP"])
    return RunCounts("go test", verdicts["ok"], verdicts["FAIL"], unit="package")


def _cargo(output: str) -> RunCounts | None:
    results = [tuple(map(int, row)) for row in CARGO.findall(output)]
    if not results:
        return None
    passed, failed, ignored, filtered = (sum(column) for column in zip(*results, strict=True))
    failed = max(failed, 1) if CARGO_FAILED.search(output) else failed
    return RunCounts("cargo test", passed, failed, ignored, filtered)


READERS: tuple[Callable[[str], RunCounts | None], ...] = (
    _pytest,
    _unittest,
    partial(_javascript, "jest", JEST, JEST_SUITES),
    partial(_javascript, "vitest", VITEST, VITEST_FILES),
    _go,
    _cargo,
)
