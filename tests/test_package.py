"""The wheel and the sdist, each built, installed from nothing and used while no checkout is in sight."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from tests.support.burnish import Burnish, running
from tests.support.patience import within

pytestmark = pytest.mark.package

ROOT = Path(__file__).parent.parent
ROOMS = [path.name for path in (ROOT / "src/burnish").iterdir() if path.is_symlink()]
TOOLS = [f"parts/page/{name}.json" for name in ("biome", "package", "tsconfig")]
"""What checks the page's JavaScript, which isn't installed."""
PROGRAM = ("__init__.py", "__main__.py", "py.typed")
UV = Path(sys.executable).with_name("uv")
LIMIT_S = 280


def call(*command: str | Path, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a command as someone who has no checkout: Python finds only what is installed."""
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    return subprocess.run(
        [str(each) for each in command],
        cwd=cwd,
        env=clean | {"NO_COLOR": "1", "COLUMNS": "300"} | env,
        capture_output=True,
        text=True,
        timeout=within(LIMIT_S),
        check=False,
    )


def done(*command: str | Path, cwd: Path, **env: str) -> str:
    """Run a command that must succeed; return what it prints."""
    ended = call(*command, cwd=cwd, **env)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def tracked() -> list[str]:
    """What a commit of this checkout would hold."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return [name for name in listed.stdout.splitlines() if os.path.lexists(ROOT / name)]


@dataclass(frozen=True)
class Installed:
    folder: Path
    """Its environment; nothing else of burnish is there."""
    home: Path
    kind: str

    @property
    def program(self) -> Path:
        return self.folder / "bin" / "burnish"

    def run(self, *arguments: str, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        return call(self.program, *arguments, cwd=self.home, **{"HOME": str(self.home), **(env or {})})


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Both artefacts; the checkout that they were built from is gone."""
    folder = tmp_path_factory.mktemp("package")
    checkout = folder / "checkout"
    for name in tracked():
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, checkout / name, follow_symlinks=False)
    done(UV, "build", "--python", sys.executable, "--out-dir", folder / "dist", cwd=checkout)
    shutil.rmtree(checkout)
    [wheel], [sdist] = (folder / "dist").glob("*.whl"), (folder / "dist").glob("*.tar.gz")
    return {"wheel": wheel, "sdist": sdist}


@pytest.fixture(scope="module", params=["wheel", "sdist"])
def installed(
    request: pytest.FixtureRequest, built: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Installed:
    """The wheel as `uv tool install` puts it, the sdist as pip would."""
    folder = tmp_path_factory.mktemp(request.param)
    home = folder / "home"
    home.mkdir()
    artefact, limits = built[request.param], ("--constraints", ROOT / "constraints.txt")
    if request.param == "wheel":
        places = {"UV_TOOL_DIR": str(folder / "tools"), "UV_TOOL_BIN_DIR": str(folder / "bin")}
        done(UV, "tool", "install", "--python", sys.executable, *limits, artefact, cwd=home, **places)
        return Installed(folder / "tools" / "burnish", home, request.param)
    done(UV, "venv", "--python", sys.executable, folder / "venv", cwd=home)
    python = folder / "venv" / "bin" / "python"
    done(UV, "pip", "install", "--python", python, *limits, artefact, cwd=home)
    return Installed(folder / "venv", home, request.param)


@pytest.fixture(scope="module")
def burnish(installed: Installed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Burnish]:
    data = tmp_path_factory.mktemp("data")
    with running(data, env={"HOME": str(installed.home)}, program=(str(installed.program),)) as program:
        yield program


def test_every_file_of_the_rooms_is_installed(installed: Installed) -> None:
    [place] = installed.folder.glob("lib/python*/site-packages/burnish")
    wanted = {name for name in tracked() if name.split("/")[0] in ROOMS}.difference(TOOLS) | set(PROGRAM)
    found = {str(path.relative_to(place)) for path in place.rglob("*") if path.is_file()}
    assert {name for name in found if "__pycache__" not in name} == wanted
    assert not [path for path in place.rglob("*") if path.is_symlink()]


def test_it_starts_answers_and_is_rated(installed: Installed, burnish: Burnish) -> None:
    body = {"model": "default", "max_tokens": 8, "messages": [{"role": "user", "content": "What is tea?"}]}
    answer = httpx.post(f"{burnish.url}/v1/chat/completions", json=body, timeout=within(120))
    assert answer.status_code == 200
    assert answer.json()["choices"][0]["message"]["content"]
    rated = installed.run("bad", "too long", "--url", burnish.url)
    assert rated.returncode == 0, rated.stderr
    status = httpx.get(f"{burnish.url}/burnish/status", timeout=within(10)).json()
    assert status["counts"]["feedback"] == 1


def test_doctor_finds_the_engine_and_names_the_command_that_adds_training(
    installed: Installed, built: dict[str, Path], burnish: Burnish
) -> None:
    seen = installed.run("doctor", "--url", burnish.url)
    how = (
        "uv tool install --force --torch-backend=auto"
        if installed.kind == "wheel"
        else f"{installed.folder}/bin/python -m pip install"
    )
    wanted = f'{how} "burnish[train] @ {built[installed.kind].as_uri()}"'
    assert "xllamacpp" in seen.stdout
    assert wanted in " ".join(seen.stdout.split())
    assert seen.returncode == 1  # as training is wanted and can't run
    assert wanted in " ".join(burnish.log_file.read_text().split())  # `burnish up` said so at its start


def test_doctor_is_content_if_training_is_off(installed: Installed) -> None:
    seen = installed.run("doctor", env={"BURNISH_TRAIN__ENABLED": "false"})
    assert seen.returncode == 0, seen.stdout + seen.stderr
