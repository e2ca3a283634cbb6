"""How each vendor's suite is installed and run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import ClassVar, NamedTuple
from xml.etree import ElementTree

from bench.conformance.recording import recording
from bench.proxy.traffic import CannotMeasure, environment, free_port, wait_for

NODE = "node@24.21.0"
PNPM = "pnpm@11.5.1"
STEADY = "@stdy/cli@0.22.2"
"""The mock that OpenAI's own suites run against."""
SPECIFICATION = Path("api_reference", "openapi.transformed.yml")
SUITE_LIMIT_S = 1200
SOME_FAILED = 1
"""What pytest and Jest return if they ran all tests and some failed."""
OUTCOMES = {"failure": "failed", "error": "failed", "skipped": "skipped"}
"""Elements of a JUnit report."""
BURNISH = (sys.executable, "-m", "burnish", "up", "--no-train")


class CannotRun(RuntimeError):
    """A suite couldn't be installed or run."""


class Taken(NamedTuple):
    """One run of a suite."""

    tests: dict[str, str]
    """Passed, failed or skipped, by test."""
    requests: tuple[str, ...] = ()
    """What the upstream was asked, in order; empty if it doesn't record."""


class Suite(ABC):
    name: ClassVar[str]
    """Also of the repository."""
    needed: ClassVar[bool] = False

    def version(self, checkout: Path) -> str:
        described = ["git", "describe", "--tags", "--always"]
        return subprocess.run(
            described, check=False, cwd=checkout, capture_output=True, text=True
        ).stdout.strip()

    @abstractmethod
    def install(self, checkout: Path, home: Path) -> None:
        """Install what the suite needs, once. Raises CannotRun."""

    @abstractmethod
    def run(self, checkout: Path, home: Path, folder: Path, *, through: bool) -> Taken:
        """Run the suite, with its output in a folder that doesn't exist yet. Raises CannotRun."""


class OpenAIPython(Suite):
    name = "openai-python"
    needed = True

    def install(self, checkout: Path, home: Path) -> None:
        _install_python(checkout, home, "aiohttp", "bedrock")
        _install_npm(home, STEADY)

    def run(self, checkout: Path, home: Path, folder: Path, *, through: bool) -> Taken:
        folder.mkdir()
        with (
            _steady(home, checkout / SPECIFICATION, folder) as upstream,
            _burnish(folder, upstream, through) as url,
        ):
            return Taken(_pytest(checkout, home, folder, ["tests/api_resources"], TEST_API_BASE_URL=url))


class OpenAINode(Suite):
    name = "openai-node"

    def install(self, checkout: Path, home: Path) -> None:
        _install_npm(home, NODE, PNPM, STEADY)
        # Scripts of dependencies aren't needed to run the tests.
        _call(["pnpm", "install", "--frozen-lockfile", "--ignore-scripts"], checkout, _with_node(home))

    def run(self, checkout: Path, home: Path, folder: Path, *, through: bool) -> Taken:
        folder.mkdir()
        report = folder / "report.json"
        jest = ["node_modules/.bin/jest", "--runInBand", "--json", f"--outputFile={report}"]
        with (
            _steady(home, checkout / SPECIFICATION, folder) as upstream,
            _burnish(folder, upstream, through) as url,
        ):
            env = {"OPENAI_TEST_SUITE": "generated", "TEST_API_BASE_URL": url, **_with_node(home)}
            _call(jest, checkout, env, may_return=SOME_FAILED)
        return Taken(_of_jest(report))


class AnthropicPython(Suite):
    """Its specification isn't published, so the upstream answers all requests alike, and records them.

    Tests that need a real answer fail both ways; each request must reach the upstream unchanged.
    """

    name = "anthropic-sdk-python"
    needed = True

    def install(self, checkout: Path, home: Path) -> None:
        _install_python(checkout, home, "aiohttp", "mcp", "webhooks")

    def run(self, checkout: Path, home: Path, folder: Path, *, through: bool) -> Taken:
        folder.mkdir()
        with recording() as upstream, _burnish(folder, upstream.url, through) as url:
            upstream.requests.clear()  # burnish's questions at its start
            tests = _pytest(checkout, home, folder, ["tests/api_resources"], TEST_API_BASE_URL=url)
            return Taken(tests, tuple(upstream.requests))


class OllamaPython(Suite):
    """Each test has a server of its own, always at one port; a plugin makes the client ask burnish instead."""

    name = "ollama-python"

    def install(self, checkout: Path, home: Path) -> None:
        _install_python(checkout, home, packages=("pytest", "pytest-anyio", "pytest-httpserver", "pillow"))

    def run(self, checkout: Path, home: Path, folder: Path, *, through: bool) -> Taken:
        folder.mkdir()
        port = free_port()
        with _burnish(folder, f"http://127.0.0.1:{port}", through, BURNISH_ALLOW_MANAGEMENT="true") as url:
            plugin = ["-p", "ask_burnish"] if through else []
            return Taken(
                _pytest(
                    checkout, home, folder, [*plugin, "tests"],
                    PYTEST_HTTPSERVER_HOST="127.0.0.1", PYTEST_HTTPSERVER_PORT=str(port),
                    PYTHONPATH=str(Path(__file__).parent), BURNISH_URL=url,
                )
            )  # fmt: skip


SUITES: tuple[Suite, ...] = (OpenAIPython(), AnthropicPython(), OpenAINode(), OllamaPython())


def _install_python(checkout: Path, home: Path, *extras: str, packages: Sequence[str] = ()) -> None:
    """Install a checkout, with its tests' packages: those given, else those of its group ``dev``."""
    uv = str(Path(sys.executable).with_name("uv"))
    _call([uv, "venv", "-q", "--allow-existing", str(home / "venv")], home)
    group = [] if packages else ["--group", f"{checkout / 'pyproject.toml'}:dev"]
    sources = ["-e", f"{checkout}[{','.join(extras)}]" if extras else str(checkout)]
    # Their pyproject.toml names indexes and versions of uv for their own machines.
    install = ["pip", "install", "-q", "--no-config", "--python", str(_python(home))]
    _call([uv, *install, *sources, *group, *packages], home)


def _install_npm(home: Path, *packages: str) -> None:
    _call(["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(home), *packages], home)


def _with_node(home: Path) -> dict[str, str]:
    return {"PATH": f"{home / 'node_modules' / '.bin'}{os.pathsep}{os.environ['PATH']}", "CI": "true"}


def _python(home: Path) -> Path:
    return home / "venv" / "bin" / "python"


def _call(command: Sequence[str], folder: Path, env: Mapping[str, str] = {}, *, may_return: int = 0) -> None:
    """Run a command in a folder. Raises CannotRun if it is missing, hangs, or returns neither 0 nor ``may_return``."""
    try:
        ended = subprocess.run(
            command,
            check=False,
            cwd=folder,
            env=os.environ | env,
            capture_output=True,
            text=True,
            timeout=SUITE_LIMIT_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotRun(str(error)) from error
    if ended.returncode not in (0, may_return):
        raise CannotRun(
            f"{' '.join(command)}: exit code {ended.returncode}\n{(ended.stdout + ended.stderr)[-2000:]}"
        )


def _pytest(checkout: Path, home: Path, folder: Path, arguments: Sequence[str], **env: str) -> dict[str, str]:
    report = folder / "report.xml"
    options = ["-q", "--tb=no", "-p", "no:cacheprovider", "-o", "addopts=", f"--junitxml={report}"]
    _call([str(_python(home)), "-m", "pytest", *options, *arguments], checkout, env, may_return=SOME_FAILED)
    return {
        f"{case.get('classname')}::{case.get('name')}": next(
            (OUTCOMES[part.tag] for part in case if part.tag in OUTCOMES), "passed"
        )
        for case in ElementTree.parse(report).iter("testcase")
    }


def _of_jest(report: Path) -> dict[str, str]:
    tests = {
        f"{Path(file['name']).name}::{test['fullName']}": "skipped"
        if test["status"] == "pending"
        else test["status"]
        for file in json.loads(report.read_text())["testResults"]
        for test in file["assertionResults"]
    }
    if not tests:
        raise CannotRun("jest ran no test")
    return tests


@contextmanager
def _steady(home: Path, specification: Path, folder: Path) -> Iterator[str]:
    """Run OpenAI's mock on their specification; yield its URL. Raises CannotRun."""
    formats = [
        f"--validator-{place}-{kind}-format=brackets"
        for place in ("query", "form")
        for kind in ("array", "object")
    ]
    port = free_port()
    program = home / "node_modules" / ".bin" / "steady"
    command = [str(program), "--host", "127.0.0.1", "-p", str(port), *formats, str(specification)]
    with _running(
        command, folder / "steady.txt", f"http://127.0.0.1:{port}/_x-steady/health", _with_node(home)
    ):
        yield f"http://127.0.0.1:{port}"


@contextmanager
def _burnish(folder: Path, upstream: str, through: bool, **settings: str) -> Iterator[str]:
    """Run burnish if the suite goes through it; yield the URL that clients ask. Raises CannotRun."""
    if not through:
        yield upstream
        return
    port = free_port()
    data = ["--data-dir", str(folder / "data"), "--port", str(port), "--upstream", upstream]
    # Suites whose server expects certain requests would be disturbed by burnish's own question what it is.
    env = environment(BURNISH_ENGINE="none", **settings)
    with _running([*BURNISH, *data], folder / "burnish.txt", f"http://127.0.0.1:{port}/healthz", env):
        yield f"http://127.0.0.1:{port}"


@contextmanager
def _running(command: Sequence[str], output: Path, ready: str, env: Mapping[str, str]) -> Iterator[None]:
    """Run a program until the block ends. Raises CannotRun, with the end of its output."""
    with ExitStack() as stack:
        file = stack.enter_context(output.open("wb"))
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, env=os.environ | env
            )
            stack.callback(_end, process)
            wait_for(ready, process)
        except (OSError, CannotMeasure) as error:
            said = output.read_text(errors="replace")[-2000:]
            raise CannotRun(f"{command[0]} didn't start: {error}\n{said}") from error
        yield


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
