"""A command imports only what it needs: people and scripts call it many times a day."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from burnish.proxy.cli.commands import COMMANDS, app
from tests.support.program import NOBODY, run

LIBRARIES = {"httpx", "numpy", "uvicorn", "starlette", "asyncio", "tomlkit", "pygments", "torch"}
HEAVY = LIBRARIES | {"burnish.proxy.log"}
SHOW_MODULES = """
import atexit, json, sys
atexit.register(lambda: print(json.dumps(sorted(sys.modules))))
from burnish.proxy.cli import main
sys.argv[1:] = {arguments}
main()
"""


@pytest.mark.parametrize("command", ["--version", "--help", "good", "status"])
def test_a_quick_command_imports_no_heavy_module(command: str) -> None:
    is_flag = command.startswith("-")
    code = SHOW_MODULES.format(arguments=[command] if is_flag else [command, "--url", NOBODY])
    program = [sys.executable, "-c", code]
    done = subprocess.run(program, capture_output=True, text=True, check=False, timeout=60)
    imported = json.loads(done.stdout.splitlines()[-1])
    assert "typer" in imported
    assert not (HEAVY | ({"rich", "pydantic"} if is_flag else set())) & set(imported)


def test_help_lists_every_command_and_each_has_its_own() -> None:
    listed = run("--help").stdout
    for name, entry in COMMANDS.items():
        assert (f"\n  {name} " in listed) is not entry.hidden


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_the_help_of_a_command_begins_with_its_line_in_the_list(name: str) -> None:
    shown = CliRunner().invoke(app, [name, "--help"])
    assert COMMANDS[name].help in " ".join(shown.stdout.split())
    assert f"burnish {name} [OPTIONS]" in shown.stdout
