"""Connecting an agent and taking that back: files as they were, or nothing done at all."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from burnish.parts.connect import AGENTS, FileChange, Home, Place, is_own
from burnish.parts.connect.changes import Json
from burnish.parts.connect.connection import connect, disconnect, profile_of, recorded
from burnish.proxy.http.errors import ConfigError

PLACE = Place("http://127.0.0.1:8787")
KEYED = Place(PLACE.url, key="sk-burnish")
Spoil = Callable[[Path], object]
CLAUDE: dict[str, Any] = {
    "theme": "dark",
    "env": {"ANTHROPIC_MODEL": "opus", "EDITOR": "vi"},
    "hooks": {"Stop": []},
}


@pytest.fixture
def record(tmp_path: Path) -> Path:
    return tmp_path / "data" / "connections" / "agent.json"


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home", {})


@pytest.fixture
def settings(home: Home) -> Path:
    """Claude Code's, as somebody wrote them."""
    path = home.path / ".claude" / "settings.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(json.dumps(CLAUDE, indent=4).encode() + b"\r\n\r\n")
    path.chmod(0o640)
    return path


def claude(home: Home, place: Place = PLACE) -> list[FileChange]:
    return list(AGENTS["claude-code"].changes(place, home))


def snapshot(home: Home) -> dict[str, tuple[bytes, int] | None]:
    files = {
        path: path.is_file() and (path.read_bytes(), path.stat().st_mode) for path in home.path.rglob("*")
    }
    return {str(path.relative_to(home.path)): content or None for path, content in files.items()}


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


@pytest.mark.parametrize("name", AGENTS)
def test_every_agent_is_connected_once_and_restored_from_nothing(name: str, home: Home, record: Path):
    home.path.mkdir()
    changes = AGENTS[name].changes(PLACE, home)
    connect(changes, record)
    connected = snapshot(home)
    assert all(each.what == "unchanged" for each in connect(changes, record))
    assert snapshot(home) == connected
    for change in changes:
        assert PLACE.url in change.path.read_text() or change.kind in ("file", "scratch")
        assert mode(change.path) == 0o600
    disconnect(record)
    assert snapshot(home) == {}
    assert not record.exists()


def test_settings_come_back_byte_for_byte(home: Home, settings: Path, record: Path):
    before = snapshot(home)
    connect(claude(home), record)
    models = ("MODEL", "DEFAULT_OPUS_MODEL", "DEFAULT_SONNET_MODEL", "DEFAULT_HAIKU_MODEL")
    assert json.loads(settings.read_text())["env"] == {
        **{"EDITOR": "vi", "ANTHROPIC_BASE_URL": PLACE.url},
        **{f"ANTHROPIC_{model}": "default" for model in models},
        **{"ANTHROPIC_AUTH_TOKEN": "burnish", "ANTHROPIC_API_KEY": ""},
    }
    assert (mode(settings), mode(record)) == (0o640, 0o600)
    disconnect(record)
    assert snapshot(home) == before


def test_connecting_to_another_place_forgets_the_first(home: Home, settings: Path, record: Path):
    before = snapshot(home)
    connect(claude(home), record)
    connect(claude(home, Place("http://127.0.0.1:9999", renames=False, own_credentials=True)), record)
    there = {"ANTHROPIC_BASE_URL": "http://127.0.0.1:9999"}
    assert json.loads(settings.read_text())["env"] == CLAUDE["env"] | there
    disconnect(record)
    assert snapshot(home) == before


def test_what_was_changed_since_stays(home: Home, settings: Path, record: Path):
    connect(claude(home), record)
    said = json.loads(settings.read_text())
    since = {"EDITOR": "ed", "ANTHROPIC_MODEL": "sonnet"}
    settings.write_text(json.dumps(said | {"theme": "light", "env": said["env"] | since}))
    connect(claude(home), record)
    disconnect(record)
    assert json.loads(settings.read_text()) == CLAUDE | {"theme": "light", "env": since}


def test_a_link_stays_a_link(home: Home, settings: Path, record: Path, tmp_path: Path):
    elsewhere = tmp_path / "dotfiles.json"
    settings.rename(elsewhere)
    settings.symlink_to(elsewhere)
    text = elsewhere.read_bytes()
    connect(claude(home), record)
    assert PLACE.url in elsewhere.read_text()
    disconnect(record)
    assert settings.is_symlink()
    assert elsewhere.read_bytes() == text


def test_a_link_that_leads_nowhere_stays_one(home: Home, record: Path, tmp_path: Path):
    settings = home.path / ".claude" / "settings.json"
    settings.parent.mkdir(parents=True)
    settings.symlink_to(tmp_path / "dotfiles" / "claude.json")
    connect(claude(home), record)
    assert PLACE.url in settings.read_text()
    disconnect(record)
    assert settings.is_symlink()
    assert not (tmp_path / "dotfiles").exists()


def test_what_is_no_regular_file_or_too_large_is_not_opened(home: Home, settings: Path, record: Path):
    huge = home.path / "huge"
    huge.touch()
    os.truncate(huge, 2**34)
    for make in (os.mkfifo, lambda path: path.symlink_to("/dev/zero"), lambda path: path.symlink_to(huge)):
        settings.unlink()
        make(settings)
        with pytest.raises(ConfigError, match=r"is not a regular file|the limit is"):
            connect(claude(home), record)


@pytest.mark.parametrize("spoil", [lambda path: path.unlink(), lambda path: path.write_text("{")])
def test_files_that_went_or_broke_harm_nobody(spoil: Spoil, home: Home, settings: Path, record: Path):
    connect(claude(home), record)
    spoil(settings)
    before = snapshot(home).get(".claude/settings.json")
    done = {each.path.name: each for each in disconnect(record)}
    assert done["rl.md"].what == "removed"
    assert snapshot(home).get(".claude/settings.json") == before
    if before is not None:
        assert done["settings.json"].what == "left"
        assert [each.path for each in recorded(record)] == [str(settings)]


def a_command_of_somebody_else(settings: Path) -> None:
    (settings.parent / "commands").mkdir()
    (settings.parent / "commands" / "rl.md").write_text("Roll a die.\n")


def a_folder_that_cannot_be_written(settings: Path) -> None:
    """It's found out only when the settings are written already."""
    (settings.parent / "commands").symlink_to("/proc/nothing")


TEXTS = ["{", "[]", '{"env": "none"}', '{"hooks": {"UserPromptExpansion": {}}}', "{'a': 1} mine", "\xff"]
SPOILT: list[tuple[Spoil, str]] = [
    *((lambda path, text=text: path.write_bytes(text.encode("latin-1")), r"settings\.json wasn't changed")
      for text in TEXTS),
    (a_command_of_somebody_else, "a file of another program"),
    (lambda path: (path.parent / "commands").write_text("a file where the folder should be"), r"rl\.md"),
    (a_folder_that_cannot_be_written, r"rl\.md"),
]  # fmt: skip


@pytest.mark.parametrize(("spoil", "says"), SPOILT)
def test_what_cannot_be_changed_is_left(spoil: Spoil, says: str, home: Home, settings: Path, record: Path):
    spoil(settings)
    before = snapshot(home)
    with pytest.raises(ConfigError, match=says):
        connect(claude(home), record)
    assert snapshot(home) == before
    assert not record.exists()


def test_a_file_in_a_folder_of_ours_keeps_the_folder(home: Home, record: Path):
    connect(claude(home), record)
    (home.path / ".claude" / "commands" / "mine.md").write_text("Mine.\n")
    disconnect(record)
    assert set(snapshot(home)) == {".claude", ".claude/commands", ".claude/commands/mine.md"}


def test_folders_of_settings_may_be_named_by_variables(tmp_path: Path):
    expected = {
        "claude-code": ["/CLAUDE_CONFIG_DIR/settings.json", "/CLAUDE_CONFIG_DIR/commands/rl.md"],
        "codex": ["/CODEX_HOME/config.toml"],
        "opencode": ["/OPENCODE_CONFIG"],
    }
    named = Home(tmp_path, {path.split("/")[1]: "/" + path.split("/")[1] for (path, *_) in expected.values()})
    found = {name: [str(change.path) for change in AGENTS[name].changes(PLACE, named)] for name in expected}
    assert found == expected


def test_a_key_of_burnish_goes_where_only_burnish_reads_it(home: Home):
    for name, agent in AGENTS.items():
        for ours in (True, False):
            place = Place(PLACE.url, key="sk-burnish", own_credentials=not ours)
            changes = agent.changes(place, home)
            assert not changes or "sk-burnish" in "".join(change.made(None) for change in changes), name


def test_while_a_key_stands_in_them_files_are_their_owners_alone(home: Home, settings: Path, record: Path):
    before = snapshot(home)
    connect(claude(home), record)
    with_key = claude(home, KEYED)
    for changed in (True, False):
        done = connect(with_key, record, private=True)
        assert any(each.what == "changed" for each in done) == changed
        assert mode(settings) == 0o600
    connect(claude(home), record)
    assert mode(settings) == 0o640
    connect(with_key, record, private=True)
    disconnect(record)
    assert snapshot(home) == before


def test_only_connecting_makes_private_what_somebody_permits(home: Home, settings: Path, record: Path):
    with_key = claude(home, KEYED)
    connect(with_key, record, private=True)
    settings.chmod(0o644)
    assert [each.what for each in connect(with_key, record, private=True)] == ["changed", "unchanged"]
    assert mode(settings) == 0o600
    settings.chmod(0o660)
    disconnect(record)
    assert mode(settings) == 0o660


def test_a_failure_leaves_what_was_private_private(home: Home, settings: Path, record: Path):
    connect(claude(home, KEYED), record, private=True)
    shutil.rmtree(settings.parent / "commands")
    a_folder_that_cannot_be_written(settings)
    with pytest.raises(ConfigError):
        connect(claude(home), record)
    assert "sk-burnish" in settings.read_text()
    assert mode(settings) == 0o600


@pytest.mark.parametrize(
    ("auth", "env", "says"),
    [
        (None, {}, "env_key"),
        ('{"OPENAI_API_KEY": "sk-mine"}', {}, "requires_openai_auth"),
        ('{"OPENAI_API_KEY": "sk-mine"}', {"OPENAI_API_KEY": "sk-this"}, "env_key"),
        ('{"OPENAI_API_KEY": null, "tokens": {}}', {}, "env_key"),
        ("{", {}, "env_key"),
    ],
)
def test_codex_takes_its_key_from_where_there_is_one(auth: str | None, env: Any, says: str, tmp_path: Path):
    if auth is not None:
        (tmp_path / ".codex").mkdir()
        (tmp_path / ".codex" / "auth.json").write_text(auth)
    for own, expected in ((True, {says}), (False, set())):
        (change,) = AGENTS["codex"].changes(Place(PLACE.url, own_credentials=own), Home(tmp_path, env))
        assert {word for word in ("env_key", "requires_openai_auth") if word in change.made(None)} == expected


def test_codex_waits_for_an_engine_that_reads_its_prompt_for_minutes(home: Home):
    for own in (False, True):
        (change,) = AGENTS["codex"].changes(Place(PLACE.url, own_credentials=own), home)
        assert ("stream_idle_timeout_ms = 1800000" in change.made(None)) is not own


def test_a_record_that_is_none_is_said_to_be_so(record: Path):
    record.parent.mkdir(parents=True)
    record.write_text("{}")
    with pytest.raises(ConfigError, match=os.path.basename(record)):
        disconnect(record)


def test_a_plugin_of_ours_goes_with_what_it_wrote(home: Home, record: Path):
    settings = home.path / ".openclaw" / "openclaw.json"
    settings.parent.mkdir(parents=True)
    settings.write_text('{"plugins": {"allow": ["telegram"]}}')
    before = snapshot(home)
    connect(AGENTS["openclaw"].changes(PLACE, home), record)
    plugins = json.loads(settings.read_text())["plugins"]
    assert plugins["allow"] == ["telegram", "burnish"]
    folder = Path(plugins["load"]["paths"][0])
    assert plugins["entries"]["burnish"]["config"] == {"url": PLACE.url, "buttons": False}
    assert json.loads((folder / "openclaw.plugin.json").read_text())["id"] == "burnish"
    (folder / "sent.json").write_text('[{"id": "1"}]')
    disconnect(record)
    assert snapshot(home) == before


def test_an_upstream_is_ours_if_only_we_can_reach_it():
    ours = "embedded:smollm2 http://127.0.0.1:8000 http://[::1]:8000/v1 http://gpu:8000 http://gpu.lan:8000"
    ours += " http://192.168.1.5:8000,http://192.168.1.6:8000"
    theirs = (
        "https://api.openai.com/v1 https://openrouter.ai/api/v1 http://8.8.8.8 http://localhost.example.com"
    )
    for upstreams, own in ((ours, True), (theirs, False)):
        assert {each: is_own(each) for each in upstreams.split()} == dict.fromkeys(upstreams.split(), own)


# -- profiles, overrides, windows, comments ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "variable"),
    [("claude-code", "CLAUDE_CONFIG_DIR"), ("codex", "CODEX_HOME"), ("openclaw", "OPENCLAW_STATE_DIR")],
)
def test_only_the_named_profile_is_disconnected(name: str, variable: str, home: Home, record: Path):
    changes = [
        AGENTS[name].changes(PLACE, Home(home.path, env))
        for env in ({variable: str(home.path / "a")}, {variable: str(home.path / "b")}, {})
    ]
    home.path.mkdir()
    for profile in changes:
        connect(profile, record)
    everything = snapshot(home)
    first = [Path(change.path) for change in changes[0]]
    assert {outcome.path for outcome in disconnect(record, profile_of(changes[0]))} == set(first)
    rest = snapshot(home)
    assert rest.items() <= everything.items()
    assert not (home.path / "a").exists() and len(rest) < len(everything)
    connect(changes[0], record)
    assert snapshot(home) == everything
    for profile in changes:
        disconnect(record, profile_of(profile))
    assert snapshot(home) == {}
    assert not record.exists()


def test_a_record_without_profiles_is_undone_as_a_whole(home: Home, settings: Path, record: Path):
    before = snapshot(home)
    connect(claude(home), record)
    content = json.loads(record.read_text())
    for file in content["files"]:
        del file["profile"]
    record.write_text(json.dumps(content))
    disconnect(record, profile_of(claude(home)))
    assert snapshot(home) == before


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("claude-code", '"CLAUDE_CODE_MAX_CONTEXT_TOKENS": "32768"'),
        ("codex", "model_context_window = 32768"),
        ("openclaw", '"contextWindow": 32768'),
        ("qwen-code", '"contextWindowSize": 32768'),
        ("opencode", '"context": 32768'),
        ("cline", '"contextWindow": 32768'),
        ("continue", "    contextLength: 32768"),
    ],
)
def test_an_agent_that_assumes_a_window_is_told_the_engine_s(name: str, expected: str, home: Home):
    def written(place: Place) -> str:
        return AGENTS[name].changes(place, home)[0].made(None)

    assert expected in written(Place(PLACE.url, window=32_768))
    assert expected.partition("32768")[0] not in written(PLACE)


def test_models_of_anthropic_keep_their_window(home: Home):
    cloud = Place(PLACE.url, renames=False, own_credentials=True, window=32_768)
    assert "CONTEXT_TOKENS" not in claude(home, cloud)[0].made(None)


OWN = {"id": "default", "baseUrl": "http://127.0.0.1:1234/v1"}


@pytest.mark.parametrize(
    ("name", "files", "words"),
    [
        ("codex", {"work.config.toml": 'model_provider = "azure"'}, ["--profile work takes model_provider = 'azure'"]),
        ("codex", {"fast.config.toml": 'model = "gpt-5"'}, ["--profile fast takes model = 'gpt-5'"]),
        ("codex", {"config.toml": 'profile = "work"'}, ["profile = 'work'"]),
        ("codex", {"a.config.toml": 'approval_policy = "never"', "b.config.toml": "{"}, []),
        ("qwen-code", {"settings.json": {"modelProviders": {"openai": [OWN]}}}, ["http://127.0.0.1:1234/v1"]),
        ("qwen-code", {"settings.json": {"modelProviders": {"openai": [{"id": "default"}]}}}, ["comes first (None)"]),
        ("qwen-code", {"settings.json": {"modelProviders": {"openai": [OWN | {"id": "x"}]}}}, []),
        ("qwen-code", {"settings.json": {"modelProviders": [OWN]}}, []),
    ],
)  # fmt: skip
def test_what_still_overrides_burnish_is_named(
    name: str, files: Any, words: list[str], home: Home, record: Path
):
    folder = home.path / {"codex": ".codex", "qwen-code": ".qwen"}[name]
    folder.mkdir(parents=True)
    for file, content in files.items():
        (folder / file).write_text(content if isinstance(content, str) else json.dumps(content))
    if files.get("settings.json") != {"modelProviders": [OWN]}:
        connect(AGENTS[name].changes(PLACE, home), record)
    sentences = AGENTS[name].overrides(PLACE, home)
    assert len(sentences) == len(words)
    assert all(word in sentence for word, sentence in zip(words, sentences, strict=True))


COMMENTED = {
    "claude-code": (
        ".claude/settings.json",
        '{\n  // mine\n  "env": {"A": "1"}, // vi\n  /* look */ "theme": "dark"\n}\n',
    ),
    "opencode": (
        ".config/opencode/opencode.jsonc",
        '// mine\n{\n\t"theme": "x", // look\n\t"provider": {}, // vi\n}\n',
    ),
    "openclaw": (
        ".openclaw/openclaw.json",
        "{\n  // mine\n  plugins: { allow: ['telegram'] }, // vi\n  a: .5, // look\n}\r\n",
    ),
    "qwen-code": (
        ".qwen/settings.json",
        '\ufeff{ // mine\n  "modelProviders": {"openai": [/* vi */]} // look\n}',
    ),
}


@pytest.mark.parametrize("name", COMMENTED)
def test_comments_in_settings_stay_and_come_back_byte_for_byte(name: str, home: Home, record: Path):
    path = home.path / COMMENTED[name][0]
    path.parent.mkdir(parents=True)
    path.write_bytes(COMMENTED[name][1].encode())
    before = snapshot(home)
    for _ in range(2):
        connect(AGENTS[name].changes(PLACE, home), record)
        text = path.read_text()
        assert PLACE.url in text
        assert all(word in text for word in ("// mine", "vi", "look"))
    disconnect(record)
    assert snapshot(home) == before


@pytest.mark.parametrize("name", COMMENTED)
def test_comments_stay_if_the_file_was_changed_since(name: str, home: Home, record: Path):
    path = home.path / COMMENTED[name][0]
    path.parent.mkdir(parents=True)
    path.write_bytes(COMMENTED[name][1].encode())
    settings = Json().parse(path.read_text())
    connect(AGENTS[name].changes(PLACE, home), record)
    path.write_bytes(path.read_bytes().replace(b"// mine", b"// mine, changed"))
    assert {outcome.what for outcome in disconnect(record)} <= {"restored", "removed", "unchanged"}
    text = path.read_text()
    assert Json().parse(text) == settings
    assert all(word in text for word in ("// mine, changed", "vi", "look"))
    assert PLACE.url not in text
