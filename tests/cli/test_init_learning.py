"""What ``burnish init`` does so that a model can learn: packages, the weights of an engine, a larger model."""

from __future__ import annotations

import json
import sysconfig
import threading
import venv
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support.execute import execute
from tests.support.llama_server import free_port
from tests.support.patience import within
from tests.support.program import on_terminal

HIDDEN = "peft"
"""Not installed, of what training needs."""


class Place(NamedTuple):
    """A home, and an installation of burnish without what trains, beside a uv that only notes what it shall do."""

    home: Path
    python: Path
    env: dict[str, str]

    @property
    def asked(self) -> str:
        note = self.home / "asked"
        return note.read_text() if note.exists() else ""

    @property
    def settings(self) -> str:
        file = self.home / ".config/burnish/config.toml"
        return file.read_text() if file.exists() else ""

    def init(self, *flags: str) -> Any:
        program = (str(self.python), "-m", "burnish", "init", "--no-service", "--port", str(free_port()))
        return execute(*program, *flags, env=self.env, limit_s=120)

    def on_terminal(self, *flags: str) -> AbstractContextManager[Any]:
        answers = ("--no-service", "--port", str(free_port()), "--agents", "none", "--preset", "careful")
        program = (str(self.python), "-m", "burnish")
        env = self.env | {"NO_COLOR": "1"}
        return on_terminal(
            "init", *answers, "--schedule", "auto", *flags, env=env, columns=300, program=program
        )


@pytest.fixture
def place(tmp_path: Path) -> Place:
    home, here = tmp_path / "home", tmp_path / "here"
    home.mkdir()
    venv.create(here, symlinks=True, with_pip=False)
    real = Path(sysconfig.get_path("purelib"))
    (packages,) = here.glob("lib/python*/site-packages")
    for path in real.iterdir():
        if path.name != HIDDEN:
            (packages / path.name).symlink_to(path)
    uv = here / "bin" / "uv"
    uv.write_text(
        f'#!/bin/sh\nPATH=/bin:/usr/bin\necho "$@" > {home}/asked\n'
        f"[ -e {home}/refuses ] && exit 7\nln -s {real / HIDDEN} {packages}\n"
    )
    uv.chmod(0o755)
    env = {"HOME": str(home), "BURNISH_DATA_DIR": str(home / "data"), "PATH": str(home), "COLUMNS": "300"}
    return Place(home, here / "bin" / "python", env)


def test_yes_installs_what_trains_by_the_command_of_this_installation(place: Place) -> None:
    embedded = ("--yes", "--upstream", "embedded")
    planned = place.init(*embedded, "--dry-run")
    assert "install the packages that train, about 0.9 GB" in planned.stdout, planned.stderr
    assert place.asked == "", "a plan installs nothing"
    without = place.init(*embedded, "--no-install")
    assert f"burnish can't train yet: {HIDDEN} not installed" in without.stdout, without.stderr
    assert place.asked == ""
    done = place.init(*embedded)
    assert done.returncode == 0, done.stderr
    assert f"pip install --python {place.python} --torch-backend=auto" in place.asked
    shown = place.asked.partition(" -e ")[0]
    assert shown in planned.stdout, "it is the command that was shown"
    again = place.init(*embedded)
    assert "packages that train" not in again.stdout


def test_an_installation_that_fails_changes_no_setting(place: Place) -> None:
    (place.home / "refuses").touch()
    failed = place.init("--yes", "--upstream", "embedded")
    assert failed.returncode == 1
    assert "ended with 7; no setting was changed" in failed.stderr
    assert "burnish init --no-install" in failed.stderr
    assert place.settings == ""


@pytest.mark.parametrize("answer", ["y", "n"])
def test_a_terminal_asks_before_it_installs(place: Place, answer: str) -> None:
    with place.on_terminal("--upstream", "embedded") as (screen, process):
        screen.until("Install them? [Y/n]: ")
        assert place.asked == ""
        screen.type(f"{answer}\n")
        if answer == "n":
            screen.until("can't train until you run it")
        screen.until("Go ahead? [Y/n]: ")
        screen.type("\n")
        screen.until("burnish init --undo")
        assert process.wait(within(60)) == 0
    assert bool(place.asked) == (answer == "y")


def test_a_machine_with_memory_is_offered_a_larger_model(place: Place) -> None:
    with place.on_terminal("--no-install") as (screen, process):
        offers = screen.until("Engine [1]: ")
        larger = next(line for line in offers.splitlines() if "which knows more" in line)
        number, name = larger.split()[0], larger.split(" with ")[1].split(",")[0]
        assert "GB to download" in larger and "GB of memory while it learns" in larger
        assert offers.index(larger) < offers.index("the embedded engine with a small model, to try it out")
        screen.type(f"{number}\n")
        assert f"model = {name}" in screen.until("Go ahead? [Y/n]: ")
        screen.type("n\n")
        assert process.wait(within(60)) == 130


@contextmanager
def engine(card: dict[str, Any]) -> Iterator[str]:
    """A server that lists one model."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            models = self.path == "/v1/models"
            body = json.dumps({"data": [card]} if models else {}).encode()
            self.send_response(200 if models else 404)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *parts: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


HUB = {"id": "qwen", "owned_by": "vllm", "root": "Qwen/Qwen3-0.6B"}
GGUF = {"id": "mine", "owned_by": "llamacpp"}


@pytest.mark.parametrize(
    ("card", "default"),
    [(HUB, "Qwen/Qwen3-0.6B"), (GGUF, "none"), (HUB | {"root": "/models/of/another/machine"}, "none")],
)
def test_the_weights_are_asked_for_if_the_engine_does_not_tell(
    place: Place, card: dict[str, Any], default: str
) -> None:
    weights = place.home / "weights"
    weights.mkdir()
    with engine(card) as url, place.on_terminal("--no-install", "--upstream", url) as (screen, process):
        seen = screen.until(f"File, directory or OWNER/NAME [{default}]: ")
        assert "On which weights may it train?" in seen and "does not tell where the weights" in seen
        screen.type("./nowhere\n")
        screen.until("is no GGUF file or directory here")
        screen.type(f"{weights}\n")
        assert f"train.base = {weights}" in screen.until("Go ahead? [Y/n]: ")
        screen.type("y\n")
        screen.until("burnish init --undo")
        assert process.wait(within(60)) == 0
    assert f'base = "{weights}"' in place.settings


def test_a_flag_answers_for_scripts_and_a_second_run_keeps_it(place: Place) -> None:
    with engine(GGUF) as url:
        missing = place.init("--yes", "--no-install", "--upstream", url, "--dry-run")
        assert "set train.base to that GGUF file" in missing.stdout, missing.stderr
        done = place.init("--yes", "--no-install", "--upstream", url, "--base", "Qwen/Qwen3-0.6B")
        assert done.returncode == 0, done.stderr
        assert "does not tell" not in done.stdout
        place.init("--yes", "--no-install", "--preset", "aggressive")
        assert 'base = "Qwen/Qwen3-0.6B"' in place.settings
        wrong = place.init("--yes", "--upstream", url, "--base", "nowhere.gguf")
        assert (wrong.returncode, "is no GGUF file or directory here" in wrong.stderr) == (2, True)
    with engine(HUB) as other:
        place.init("--yes", "--no-install", "--upstream", other)
        assert "base" not in place.settings, "they are another engine's weights"


@pytest.mark.parametrize("owner", ["organization_owner", "somebody"])
def test_an_engine_that_takes_no_versions_is_named_and_nothing_is_installed_for_it(
    place: Place, owner: str
) -> None:
    with engine({"id": "mine", "owned_by": owner}) as url:
        done = place.init("--yes", "--upstream", url)
    assert done.returncode == 0, done.stderr
    assert f"burnish can't swap versions: burnish can't load versions into the server at {url}" in done.stdout
    assert place.asked == ""
