"""``burnish connect``, ``disconnect`` and the hook, as programs that people and agents run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.burnish import Burnish, running
from tests.support.program import NOBODY, ask, call
from tests.support.tiny_gguf import random_llama

HOOK = {"session_id": "s", "hook_event_name": "UserPromptExpansion", "prompt": "/rl good"}


@pytest.fixture
def env(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "XDG_CONFIG_HOME", "OPENCODE_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    return {"HOME": str(tmp_path)}


def test_connected_and_back(burnish: Burnish, env: dict[str, str], tmp_path: Path) -> None:
    settings = tmp_path / ".codex" / "config.toml"
    settings.parent.mkdir()
    settings.write_text('# mine\nmodel = "gpt-5"\n')
    done = call("connect", "codex", url=burnish.url, env=env)
    assert done.returncode == 0, done.stderr
    assert str(settings) in done.stdout
    assert "Codex sends about 20,000 tokens" in done.stdout
    larger = "burnish up --model qwen2.5-coder-0.5b --context 24096 --parallel 1. Its engine takes 0.9 GB"
    assert larger in done.stdout
    assert f'base_url = "{burnish.url}/v1"' in settings.read_text()
    assert "unchanged" in call("connect", "codex", url=burnish.url, env=env).stdout
    listed = {line.split()[0]: line for line in call("connect", env=env).stdout.splitlines()}
    assert "yes" in listed["codex"]
    assert "yes" not in listed["opencode"]
    assert "restored" in call("disconnect", "codex", env=env).stdout
    assert settings.read_text() == '# mine\nmodel = "gpt-5"\n'
    again = call("disconnect", "codex", env=env)
    assert (again.returncode, "isn't connected" in again.stdout) == (0, True)


def test_an_agent_that_sends_more_than_the_engine_takes_is_named(env: dict[str, str], tmp_path: Path) -> None:
    model = random_llama(tmp_path / "tiny.gguf", keys={"context_length": 32_768})
    with running(tmp_path / "up", "--model", str(model), "--context", "8192", "--parallel", "2") as up:
        agents = ("claude-code", "aider", "llm")
        said = {name: call("connect", name, url=up.url, env=env).stdout for name in agents}
        shown = " ".join(call("status", url=up.url, env=env | {"COLUMNS": "200"}).stdout.split())
    assert "about 24,000 tokens with its first message, and the engine takes 8,192" in said["claude-code"]
    assert "Start burnish with --context 28096" in said["claude-code"]
    assert "tokens" not in said["aider"] + said["llm"]
    assert "2 requests at a time, each of up to 8,192 tokens; the model was trained for 32,768" in shown


def test_what_would_be_written_is_printed(burnish: Burnish, env: dict[str, str], tmp_path: Path) -> None:
    printed = call("connect", "claude-code", "--print", "--model", "qwen", url=burnish.url, env=env).stdout
    assert '"ANTHROPIC_MODEL": "qwen"' in printed
    assert "/rl $ARGUMENTS" in printed
    assert f"OPENAI_API_BASE={burnish.url}/v1" in call("connect", "aider", url=burnish.url, env=env).stdout
    assert not (tmp_path / ".claude").exists()


def test_it_works_before_burnish_runs_and_says_so(env: dict[str, str], tmp_path: Path) -> None:
    done = call("connect", "opencode", url=NOBODY, env=env)
    assert (done.returncode, "Start it with: burnish up" in done.stdout) == (0, True)
    assert "tokens" not in done.stdout, "nobody knows the engine yet"
    assert NOBODY in (tmp_path / ".config" / "opencode" / "opencode.json").read_text()


def test_what_cannot_be_done_is_said_in_one_sentence(env: dict[str, str], tmp_path: Path) -> None:
    unknown = call("connect", "emacs", url=NOBODY, env=env)
    assert (unknown.returncode, "claude-code" in unknown.stderr) == (2, True)
    settings = tmp_path / ".claude" / "settings.json"
    settings.parent.mkdir()
    settings.write_text("{ mine\n}")
    refused = call("connect", "claude-code", url=NOBODY, env=env)
    assert (refused.returncode, "--print" in refused.stderr) == (1, True)
    assert settings.read_text() == "{ mine\n}"
    assert "it isn't valid JSON at '}' in line 2" in refused.stderr


def test_before_a_cloud_an_agent_keeps_its_own_login_and_models(env: dict[str, str], tmp_path: Path) -> None:
    cloud = env | {"BURNISH_UPSTREAM": "https://api.anthropic.com"}
    call("connect", "claude-code", url=NOBODY, env=cloud)
    settings = json.loads((tmp_path / ".claude" / "settings.json").read_text())
    assert settings["env"] == {"ANTHROPIC_BASE_URL": NOBODY}


def test_the_running_burnish_knows_whether_an_agent_needs_a_key(env: dict[str, str], tmp_path: Path) -> None:
    """Whoever connects an agent need not have said in this shell what burnish was started with."""
    cloud = {"BURNISH_UPSTREAM": "http://models.invalid/v1", "BURNISH_ENGINE": "none"}
    settings = tmp_path / ".codex" / "config.toml"
    for held, wanted in (("sk-upstream", False), ("", True)):
        with running(tmp_path / "up", env=cloud | {"BURNISH_UPSTREAM_API_KEY": held}) as up:
            done = call("connect", "codex", url=up.url, env=env)
        assert done.returncode == 0, done.stderr
        assert ("env_key" in settings.read_text()) == wanted
        assert ("its own key: OPENAI_API_KEY" in done.stdout) == wanted


def test_a_key_opens_burnish_to_agents_and_their_hooks(env: dict[str, str], tmp_path: Path) -> None:
    with running(tmp_path / "up", env={"BURNISH_API_KEY": "sk-burnish", "BURNISH_TRAIN__ENABLED": "0"}) as up:
        stranger = call("connect", "claude-code", url=up.url, env=env)
        assert (stranger.returncode, "none is set here" in stranger.stderr) == (1, True)
        wrong = call("status", url=up.url, env=env | {"BURNISH_API_KEY": "sk-wrong"})
        assert "is wrong" in wrong.stderr
        assert call("connect", "claude-code", url=up.url, env=env | {"BURNISH_API_KEY": "sk-burnish"}).stdout
        said = json.loads((tmp_path / ".claude" / "settings.json").read_text())["env"]
        assert said["ANTHROPIC_AUTH_TOKEN"] == "sk-burnish"
        # Claude Code gives its hooks what stands there.
        hook = call("hook", "--url", up.url, stdin=json.dumps(HOOK), env=env | said)
        assert "nothing was rated" in json.loads(hook.stdout)["reason"]


def test_a_hook_answers_in_the_agents_words(burnish: Burnish, env: dict[str, str]) -> None:
    ask(burnish.url)
    nobodys = call("hook", "--url", burnish.url, stdin=json.dumps(HOOK), env=env)
    said = json.loads(nobodys.stdout)
    assert said["decision"] == "block"
    assert "nothing was rated" in said["reason"], "it was asked in no session"
    status = call("hook", "--url", burnish.url, stdin=json.dumps(HOOK | {"prompt": "/rl status"}), env=env)
    assert "training" in json.loads(status.stdout)["reason"]


def test_one_key_rates_and_no_other_message_does(burnish: Burnish, env: dict[str, str]) -> None:
    typed = HOOK | {"hook_event_name": "UserPromptSubmit"}
    for prompt in ("+", " - "):
        said = call("hook", "--url", burnish.url, stdin=json.dumps(typed | {"prompt": prompt}), env=env)
        assert json.loads(said.stdout)["decision"] == "block"
    # /rl has a hook of its own, which would rate a second time.
    for prompt in ("++", "- a list", "+1", "/rl good", ""):
        said = call("hook", "--url", burnish.url, stdin=json.dumps(typed | {"prompt": prompt}), env=env)
        assert said.stdout == ""
    stop = {"session_id": "s", "hook_event_name": "Stop"}
    assert list(json.loads(call("hook", stdin=json.dumps(stop), env=env).stdout)) == ["systemMessage"]


def test_the_mode_decides_what_an_agent_offers(env: dict[str, str], tmp_path: Path) -> None:
    def connected(agent: str, mode: str) -> str:
        done = call("connect", agent, "--url", NOBODY, env=env | {"BURNISH_FEEDBACK__MODE": mode})
        assert done.returncode == 0, done.stderr
        return done.stdout

    settings = tmp_path / ".claude" / "settings.json"
    for mode, events in (("command", 1), ("prompt", 3), ("reactions", 1)):
        connected("claude-code", mode)
        assert len(json.loads(settings.read_text())["hooks"]) == events, mode
    claw = tmp_path / ".openclaw" / "openclaw.json"
    for mode, buttons in (("prompt", True), ("reactions", False)):
        connected("openclaw", mode)
        assert json.loads(claw.read_text())["plugins"]["entries"]["burnish"]["config"]["buttons"] is buttons
    connected("openclaw", "command")
    assert "plugins" not in json.loads(claw.read_text())
    assert "can't show a choice" in connected("opencode", "prompt")
    for agent in ("claude-code", "openclaw", "opencode"):
        assert call("disconnect", agent, env=env).returncode == 0
    assert not settings.exists() and not claw.exists() and not (tmp_path / ".openclaw").exists()


@pytest.mark.parametrize(
    ("stdin", "says"),
    [
        (json.dumps(HOOK), "isn't running"),
        (json.dumps(HOOK | {"prompt": "Why is the sky blue?"}), ""),
        *[(other, "") for other in (json.dumps({"prompt": "/rl good"}), "[]", "")],
    ],
)
def test_a_hook_never_breaks_the_agent(stdin: str, says: str, env: dict[str, str]) -> None:
    done = call("hook", "--url", NOBODY, stdin=stdin, env=env)
    assert (done.returncode, says in done.stdout) == (0, True)
    assert bool(done.stdout) == bool(says), "without an answer, the prompt goes on to the model"


def test_two_profiles_and_what_overrides_them(burnish: Burnish, env: dict[str, str], tmp_path: Path) -> None:
    profiles = [env | {"CLAUDE_CONFIG_DIR": str(tmp_path / name)} for name in "ab"]
    for profile in profiles:
        assert call("connect", "claude-code", url=burnish.url, env=profile).returncode == 0
    settings = [tmp_path / name / "settings.json" for name in "ab"]
    assert json.loads(settings[1].read_text())["env"]["CLAUDE_CODE_MAX_CONTEXT_TOKENS"].isdecimal()
    done = call("disconnect", "claude-code", env=profiles[0])
    assert not settings[0].exists() and settings[1].exists()
    assert f"still connected: {settings[1]}" in done.stdout
    assert "removed" in call("disconnect", "claude-code", env=profiles[1]).stdout
    work = tmp_path / ".codex" / "work.config.toml"
    work.parent.mkdir()
    work.write_text('model_provider = "azure"\n')
    said = call("connect", "codex", url=burnish.url, env=env).stdout
    assert f"except:\n  codex --profile work takes model_provider = 'azure' from {work}" in said
