"""``burnish init`` as a program that people and scripts run."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from burnish.terminal.client import Proxy
from tests.parts.desktop.init.test_setup import CONFIG, SHAPES, snapshot
from tests.support.burnish import Burnish
from tests.support.llama_server import free_port
from tests.support.patience import within
from tests.support.program import NOBODY, call, interrupt, on_terminal, run


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home directory with settings of several agents, some readable by others."""
    home = tmp_path / "home"
    for number, (name, texts) in enumerate(SHAPES.items()):
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(texts[0].encode())
        path.chmod((0o600, 0o644, 0o400)[number % 3])
    (home / ".qwen").chmod(0o755)
    return home


@pytest.fixture
def env(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The environment of a machine without agents and without a service manager."""
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "XDG_CONFIG_HOME", "OPENCODE_CONFIG", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(name, raising=False)
    # So many columns that no line is broken.
    directories = {"HOME": str(home), "BURNISH_DATA_DIR": str(home / "data"), "PATH": str(tmp_path)}
    return directories | {"COLUMNS": "300"}


@pytest.fixture
def flags(burnish: Burnish) -> list[str]:
    """The answers that a machine with a busy port needs; another burnish is the engine."""
    return ["init", "--yes", "--upstream", burnish.url, "--port", str(free_port())]


def test_init_and_undo_leave_the_home_as_it_was(home: Path, env: dict[str, str], flags: list[str]) -> None:
    before = snapshot(home)
    done = call(*flags, "--agents", "found", "--preset", "careful", "--schedule", "01:00-06:30", env=env)
    assert done.returncode == 0, done.stderr
    assert "train.preset = careful" in done.stdout and "(was manual)" in done.stdout
    assert "in words what is wrong" in done.stdout and "/rl bad too long" in done.stdout
    assert "Start it with: burnish up" in done.stdout, "without a service manager"
    changed = {name for name, now in snapshot(home).items() if before.get(name) != now}
    for agent in (".claude", ".codex", ".qwen", ".cline", ".continue", ".openclaw"):
        assert any(name.startswith(agent) for name in changed), agent
    undone = call("init", "--undo", env=env)
    assert undone.returncode == 0, undone.stderr
    assert snapshot(home) == before
    again = call("init", "--undo", env=env)
    assert (again.returncode, "nothing to undo" in again.stdout) == (0, True)


def test_a_second_run_changes_only_what_is_asked(home: Path, env: dict[str, str], flags: list[str]) -> None:
    call(*flags, "--agents", "codex", env=env)
    before = snapshot(home)
    assert "nothing to change" in call(*flags, env=env).stdout
    assert "nothing to change" in call("init", "--yes", env=env).stdout, "what was answered stays"
    assert snapshot(home) == before
    done = call("init", "--yes", "--preset", "aggressive", env=env)
    assert "train.preset = aggressive (was balanced)" in done.stdout
    changed = {name for name, now in snapshot(home).items() if before[name] != now}
    assert changed == {".config/burnish/config.toml"}


def test_the_small_model_replaces_one_that_is_gone(home: Path, env: dict[str, str], flags: list[str]) -> None:
    """The configuration names a model, and no upstream."""
    embedded = ["init", "--yes", "--upstream", "embedded", "--port", flags[-1]]
    refused = call(*embedded, env=env)
    assert (refused.returncode, "--model small" in refused.stderr) == (2, True)
    done = call(*embedded, "--model", "qwen3-0.6b", "--dry-run", env=env)
    assert "qwen3-0.6b" in done.stdout, done.stderr  # it is downloaded when burnish starts
    done = call(*embedded, "--model", "small", env=env)
    assert "model is removed (was llama)" in done.stdout, done.stderr
    assert "claude-code, codex, " in done.stdout and "installed, but not connected" in done.stdout


def test_settings_that_still_override_burnish_are_named_by_init(
    home: Path, env: dict[str, str], flags: list[str]
) -> None:
    (home / ".codex" / "work.config.toml").write_text('model_provider = "azure"\n')
    (home / ".qwen" / "settings.json").chmod(0o600)
    (home / ".qwen" / "settings.json").write_text(
        '{"modelProviders": {"openai": [{"id": "default", "baseUrl": "http://127.0.0.1:1234/v1"}]}}'
    )
    result = call(*flags, "--agents", "codex,qwen-code,cline", env=env).stdout
    assert "except:\n  codex --profile work takes model_provider = 'azure'" in result
    assert "is called 'default', too, and comes first" in result
    assert (
        f"Cline now uses http://127.0.0.1:{flags[-1]}.\nTo rate an answer, type into Cline: /rl good"
        in result
    )


def test_a_dry_run_plans_and_writes_nothing(home: Path, env: dict[str, str], flags: list[str]) -> None:
    before = snapshot(home)
    done = call(*flags, "--agents", "codex,llm", "--dry-run", env=env)
    assert "change  ~/.codex/config.toml" in done.stdout
    assert snapshot(home) == before
    assert not (home / "data").exists()


def test_data_is_kept_until_it_is_purged(home: Path, env: dict[str, str], flags: list[str]) -> None:
    call(*flags, env=env)
    (home / "data" / "burnish.db").touch()
    undone = call("init", "--undo", env=env)
    assert "are kept in ~/data" in undone.stdout
    refused = call("init", "--undo", "--purge", env=env)
    assert (refused.returncode, "--yes" in refused.stderr) == (2, True)
    assert (home / "data" / "burnish.db").exists()
    assert "deleted    ~/data" in call("init", "--undo", "--purge", "--yes", env=env).stdout
    assert not (home / "data").exists()


def test_data_in_use_is_not_purged(burnish: Burnish) -> None:
    used = {"BURNISH_DATA_DIR": str(burnish.data_dir)}
    refused = call("init", "--undo", "--purge", "--yes", env=used)
    assert (refused.returncode, "burnish is running" in refused.stderr) == (1, True)
    assert Proxy(burnish.url).get("/burnish/status")


@pytest.mark.parametrize(
    "given",
    [
        (["--agents", "emacs"], 2, "'emacs': burnish knows no such agent"),
        (["--preset", "bold"], 2, "a preset is one of careful"),
        (["--schedule", "1-2"], 2, "01:00-06:30"),
        (["--upstream", NOBODY], 1, "name another engine with --upstream"),
        (["--upstream", "http://127.0.0.1:8799", "--port", "8799"], 2, "that is burnish itself"),
        (["--upstream", "http://["], 2, "upstream: Invalid IPv6 URL"),
        (["--upstream", "embedded", "--model", "nowhere.gguf"], 2, "can't be read: No such file"),
        (["--upstream", "embedded", "--model", __file__], 2, "isn't a GGUF file"),
        (["--upstream", "embedded", "--model", "qwn3-0.6b"], 2, "did you mean qwen3-0.6b"),
        (["--upstream", "embedded", "--model", "ollama:"], 2, "isn't the name of a model of Ollama"),
        (["--model", "gpt-5"], 2, "serves no model 'gpt-5'; it has: "),
        (["--port", "99999"], 2, "--port"),
        (["--service"], 1, "systemd" if Path("/proc").exists() else "launch"),
        (["--undo"], 2, "--undo goes only with"),
        (["--purge"], 2, "init --undo --purge"),
    ],
)
def test_what_is_wrong_is_one_sentence_and_changes_nothing(
    given: tuple[list[str], int, str], home: Path, env: dict[str, str], flags: list[str]
) -> None:
    wrong, code, says = given
    before = snapshot(home)
    refused = call(*flags, *wrong, env=env)
    assert (refused.returncode, says in refused.stderr) == (code, True), refused.stderr + refused.stdout
    assert "Traceback" not in refused.stderr
    assert snapshot(home) == before
    assert not (home / "data").exists()


def test_a_taken_port_is_named_with_a_free_one(home: Path, env: dict[str, str], flags: list[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        port = stranger.getsockname()[1]
        refused = call(*flags, "--port", str(port), env=env)
    assert refused.returncode == 1
    assert f"port {port} can't be used" in refused.stderr
    assert "choose another with --port; " in refused.stderr and " is free" in refused.stderr
    assert not (home / "data").exists()


@pytest.mark.parametrize(
    "broken",
    [
        (".claude/settings.json", "{ // mine\n", "leave claude-code out of --agents"),
        (".config/burnish/config.toml", "port = \n", "is not valid TOML"),
        ("data", "a file", "is a file, not a directory"),
    ],
)
def test_a_home_that_cannot_be_changed_stays_as_it_is(
    broken: tuple[str, str, str], home: Path, env: dict[str, str], flags: list[str]
) -> None:
    name, text, says = broken
    (home / name).unlink(missing_ok=True)
    (home / name).write_text(text)
    before = snapshot(home)
    refused = call(*flags, "--agents", "claude-code,codex", env=env)
    assert refused.returncode in (1, 2)
    assert says in refused.stderr
    assert snapshot(home) == before


def test_without_a_terminal_it_wants_yes(home: Path, env: dict[str, str]) -> None:
    refused = run("init", env=env)
    assert refused.returncode == 2
    assert "--yes" in refused.stderr and "--agents" in refused.stderr
    assert not (home / "data").exists()


def test_an_edit_without_undo_is_left_and_named(home: Path, env: dict[str, str], flags: list[str]) -> None:
    before = snapshot(home)
    call(*flags, "--agents", "claude-code,codex", env=env)
    rl = home / ".claude" / "commands" / "rl.md"
    rl.write_text("mine now")
    undone = call("init", "--undo", env=env)
    assert undone.returncode == 1
    assert "left" in undone.stdout and "was changed since" in undone.stdout
    assert rl.read_text() == "mine now"
    assert (home / ".config/burnish/config.toml").read_text() == CONFIG
    rl.unlink()
    assert call("init", "--undo", env=env).returncode == 0
    assert snapshot(home) == before, "it was tried again"


def test_a_terminal_is_asked_and_asked_again(home: Path, env: dict[str, str], burnish: Burnish) -> None:
    port = free_port()
    shell = env | {"NO_COLOR": "1"}
    with on_terminal("init", "--port", str(port), "--no-service", env=shell) as (screen, process):
        for texts, answer in (
            (("Which engine serves the model?", "Engine [1]: "), NOBODY),
            (("doesn't answer", "Engine [1]: "), burnish.url),
            (("Model [default]: ",), "gpt-5"),
            (("it has: default, smollm2",), "smollm2"),
            (("Which agents shall use burnish?", "claude-code, codex, opencode", "]: "), "emacs"),
            (("burnish knows no such agent",), "codex"),
            (("Preset [balanced]: ",), ""),
            (("When [manual]: ",), "02:00-05:00"),
            (("On which weights may it train?", "[none]: "), ""),
        ):
            for text in texts:
                screen.until(text)
            screen.type(f"{answer}\n")
        screen.until("Go ahead? [Y/n]: ")
        assert not (home / "data").exists()
        screen.type("\n")
        screen.until("burnish init --undo")
        assert process.wait(within(60)) == 0
    assert f"port = {port}" in (home / ".config/burnish/config.toml").read_text()
    assert json.loads((home / "data" / "init.json").read_text())["agents"] == ["codex"]


@pytest.mark.parametrize("question", ["Engine [1]: ", "Go ahead? [Y/n]: "])
def test_ctrl_c_changes_nothing(question: str, home: Path, env: dict[str, str], burnish: Burnish) -> None:
    before = snapshot(home)
    engine = ["--upstream", burnish.url, "--model", "smollm2", "--base", "none", "--agents", "none"]
    answers = [] if question.startswith("Engine") else engine
    answers += ["--preset", "careful", "--schedule", "auto", "--no-service", "--port", str(free_port())]
    with on_terminal("init", *answers, env=env | {"NO_COLOR": "1"}) as (screen, process):
        screen.until(question)
        assert interrupt(process) == 130
        screen.until("nothing was changed")
    assert snapshot(home) == before
    assert not (home / "data").exists()
