"""A command imports only what it needs: people and scripts call it many times a day."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from burnish.cli.commands import COMMANDS, app
from tests.support.execute import execute
from tests.support.program import NOBODY, run

LIBRARIES = {"httpx", "numpy", "uvicorn", "starlette", "asyncio", "tomlkit", "pygments", "torch"}
HEAVY = LIBRARIES | {"burnish.proxy.log"}
SHOW_MODULES = """
import atexit, json, sys
atexit.register(lambda: print(json.dumps(sorted(sys.modules))))
from burnish.cli import main
sys.argv[1:] = {arguments}
main()
"""


@pytest.mark.parametrize("command", ["--version", "--help", "good", "status"])
def test_a_quick_command_imports_no_heavy_module(command: str) -> None:
    is_flag = command.startswith("-")
    code = SHOW_MODULES.format(arguments=[command] if is_flag else [command, "--url", NOBODY])
    done = execute(sys.executable, "-c", code)
    imported = json.loads(done.stdout.splitlines()[-1])
    assert "typer" in imported
    assert not (HEAVY | ({"rich", "pydantic"} if is_flag else set())) & set(imported)


def test_bash_completes_commands_options_and_agents() -> None:
    """Each line is what a person has typed before the tab key."""
    script = """
    eval "$(burnish --show-completion)"
    while IFS= read -r line; do
        read -ra COMP_WORDS <<< "$line"
        [[ $line == *" " ]] && COMP_WORDS+=("")
        COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
        _burnish_completion burnish
        echo "${COMPREPLY[@]}"
    done
    """
    typed = ["burnish ", "burnish st", "burnish adapters pro", "burnish up --da", "burnish disconnect c"]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = execute("bash", "--norc", "-c", script, stdin="\n".join([*typed, ""]), env={"PATH": path})
    assert done.returncode == 0, done.stderr
    every, *others = done.stdout.splitlines()
    assert every.split() == [name for name, entry in COMMANDS.items() if not entry.hidden]
    assert others == ["status", "promote", "--data-dir", "claude-code codex cline continue"]


def test_completing_a_name_imports_no_command() -> None:
    code = SHOW_MODULES.format(arguments=[])
    protocol = {"_BURNISH_COMPLETE": "complete_bash", "COMP_WORDS": "burnish ", "COMP_CWORD": "1"}
    done = execute(sys.executable, "-c", code, env=protocol)
    assert done.returncode == 0, done.stderr
    *names, imported = done.stdout.splitlines()
    assert "status" in names
    assert not {"burnish.cli.up", "burnish.cli.show", "rich"} & set(json.loads(imported))


def test_help_lists_every_command_and_each_has_its_own() -> None:
    listed = run("--help").stdout
    for name, entry in COMMANDS.items():
        assert (f"\n  {name} " in listed) is not entry.hidden


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_the_help_of_a_command_begins_with_its_line_in_the_list(name: str) -> None:
    shown = CliRunner().invoke(app, [name, "--help"])
    assert COMMANDS[name].help in " ".join(shown.stdout.split())
    assert f"burnish {name} [OPTIONS]" in shown.stdout
