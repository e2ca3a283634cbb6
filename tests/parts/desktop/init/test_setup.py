"""What init changes, and that taking it back leaves a home directory byte for byte as it was."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from burnish.parts.connect import AGENTS, Home, Place, connection
from burnish.parts.connect.connection import connect, disconnect
from burnish.parts.desktop.init.carrying_out import carry_out, purge, undo
from burnish.parts.desktop.init.plan import SetupAnswers, SetupPlan, SetupRecord, make_plan
from burnish.proxy.http.errors import ConfigError

ANSWERS = SetupAnswers(
    agents=("claude-code", "codex", "opencode", "continue"),
    upstream="http://127.0.0.1:8000",
    model="qwen3",
    preset="careful",
    schedule="01:00-06:30",
    port=8788,
    service=False,
)
CONFIG = """\
# mine
port = 8787      # as ever
owners = ["me"]
model = 'llama'

[train]   # at night
schedule = "manual"
min_good = 3

[log]
keep_days = 30
"""
SHAPES: Mapping[str, tuple[str, ...]] = {
    ".config/burnish/config.toml": (CONFIG, CONFIG.replace("\n", "\r\n"), "", "# nothing yet", "[train]\nseed = 1\n"),
    ".claude/settings.json": ('{"env": {"EDITOR": "vi"}, "hooks": {"Stop": []}}', "{}\n\n", '{\n\t"x": 1\n}\r\n'),
    ".claude/commands/mine.md": ("---\n---\nhello",),
    ".codex/config.toml": ('model = "gpt-5" # best\n\n[model_providers.azure]\nname = "azure"\n', '[tui]\nx = 1'),
    ".codex/auth.json": ('{"OPENAI_API_KEY": "sk-x"}',),
    ".config/opencode/opencode.json": ('{"model": "a/b", "provider": {"a": {}}}', '{"command": {"go": {}}}'),
    ".openclaw/openclaw.json": ('{"plugins": {"allow": ["x"], "load": {"paths": ["/p"]}}}', "{ }"),
    ".qwen/settings.json": ('{"env": {"A": "b"}, "modelProviders": {"openai": []}}',),
    ".cline/data/settings/providers.json": ('{"version": 1, "providers": {}}',),
    ".continue/config.yaml": ("name: Mine\nmodels:\n  - name: a\n    provider: b\n", "models:\n- name: a\n"),
    ".config/io.datasette.llm/extra-openai-models.yaml": ("- model_id: a\n  model_name: b\n",),
    ".local/share/other/file": ("other",),
}  # fmt: skip


def snapshot(home: Path) -> dict[str, tuple[bytes | str | None, int]]:
    """Every file, link and directory with its content and mode, without the data directory."""
    found: dict[str, tuple[bytes | str | None, int]] = {}
    for path in sorted(home.rglob("*")):
        name = str(path.relative_to(home))
        if name.startswith("data"):
            continue
        content = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else None
        found[name] = content, path.lstat().st_mode
    return found


def planned(home: Path, answers: SetupAnswers = ANSWERS) -> SetupPlan:
    place = Place(f"http://127.0.0.1:{answers.port}")
    file = home / ".config" / "burnish" / "config.toml"
    return make_plan(answers, place, file, home / "data", Home(home, {}))


@st.composite
def homes(draw: st.DrawFn) -> list[tuple[str, str, int]]:
    """Files of a home directory: path, text, mode."""
    names = draw(st.sets(st.sampled_from(sorted(SHAPES))))
    modes = st.sampled_from((0o600, 0o644, 0o640, 0o664, 0o400))
    return [(name, draw(st.sampled_from(SHAPES[name])), draw(modes)) for name in sorted(names)]


answered = st.builds(
    SetupAnswers,
    agents=st.sets(st.sampled_from(sorted(AGENTS))).map(lambda names: tuple(n for n in AGENTS if n in names)),
    upstream=st.sampled_from((None, "http://127.0.0.1:8000", "http://box:8000/v1")),
    model=st.sampled_from((None, "qwen3", 'a "b" \\ c')),
    preset=st.sampled_from(("careful", "balanced", "aggressive")),
    schedule=st.sampled_from(("auto", "manual", "01:00-06:30")),
    port=st.sampled_from((8787, 9000)),
    service=st.just(False),
)


@contextmanager
def made(files: list[tuple[str, str, int]]) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        for name, text, mode in files:
            path = home / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text.encode())
            path.chmod(mode)
        yield home


@settings(max_examples=30)  # each writes and syncs dozens of files
@given(
    files=homes(),
    runs=st.lists(answered, min_size=1, max_size=2),
    by_hand=st.sets(st.sampled_from(("codex", "llm"))),
)
def test_undo_leaves_any_home_as_it_was(
    files: list[tuple[str, str, int]], runs: list[SetupAnswers], by_hand: set[str]
) -> None:
    """Whatever was in it, however often init ran, and also if the user had connected agents to another place."""
    with made(files) as home:
        for name in by_hand:
            changes = AGENTS[name].changes(Place("http://127.0.0.1:7777"), Home(home, {}))
            connect(changes, connection.record_file(home / "data", name))
        before, records = snapshot(home), sorted((home / "data").rglob("*"))
        for answers in runs:
            carry_out(planned(home, answers))
            again = planned(home, answers)
            assert not again.changes_anything, (again.settings, [part.name for part in again.parts])
        undo(home / "data")
        assert snapshot(home) == before
        assert sorted((home / "data").rglob("*")) == records


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    with made([(name, texts[0], 0o640) for name, texts in SHAPES.items()]) as path:
        yield path


def test_the_configuration_keeps_its_comments(home: Path) -> None:
    carry_out(planned(home))
    assert (home / ".config/burnish/config.toml").read_text() == (
        CONFIG.replace("port = 8787 ", "port = 8788 ")
        .replace("'llama'\n", '"qwen3"\nupstream = "http://127.0.0.1:8000"\n')
        .replace('"manual"\nmin_good = 3\n', '"01:00-06:30"\nmin_good = 3\npreset = "careful"\n')
    )


def test_an_agent_that_is_left_out_is_disconnected(home: Path) -> None:
    before = snapshot(home)
    carry_out(planned(home))
    carry_out(planned(home, replace(ANSWERS, agents=("codex",))))
    now = snapshot(home)
    assert now[".claude/settings.json"] == before[".claude/settings.json"]
    assert now[".codex/config.toml"] != before[".codex/config.toml"]
    record = SetupRecord.read(home / "data")
    assert record and record.agents == ("codex",)


def test_edits_since_then_stay(home: Path) -> None:
    carry_out(planned(home))
    config, codex = home / ".config/burnish/config.toml", home / ".codex/config.toml"
    edited = config.read_text().replace('"careful"', '"aggressive"  # faster!')
    config.write_text(edited + "keep_rated = false\n")
    codex.write_text(codex.read_text() + "\n[mine]\nx = 1\n")
    carry_out(planned(home, replace(ANSWERS, preset="aggressive", port=9999)))
    assert '"aggressive"  # faster!' in config.read_text()
    undo(home / "data")
    left = config.read_text()
    assert "keep_rated = false" in left and "port = 8787      # as ever" in left
    assert "upstream" not in left
    assert codex.read_text() == SHAPES[".codex/config.toml"][0] + "\n[mine]\nx = 1\n"


@pytest.mark.parametrize("was_there", [True, False])
def test_downloads_go_if_their_folder_was_not_there(tmp_path: Path, was_there: bool) -> None:
    models = tmp_path / ".cache" / "burnish" / "models"
    if was_there:
        models.mkdir(parents=True)
    carry_out(planned(tmp_path))
    models.mkdir(parents=True, exist_ok=True)
    (models / "small.gguf").touch()
    undo(tmp_path / "data")
    assert models.exists() is was_there
    assert (tmp_path / ".cache").exists() is was_there


@dataclass
class Fails:
    """A last step that fails, as a service may that doesn't start."""

    error: BaseException
    taken_back: bool = False

    def take(self) -> None:
        raise self.error

    def take_back(self) -> None:
        self.taken_back = True


@pytest.mark.parametrize("error", [ConfigError("it doesn't start"), KeyboardInterrupt()])
@pytest.mark.parametrize("first", [True, False])
def test_a_step_that_fails_takes_the_earlier_ones_back(home: Path, error: BaseException, first: bool) -> None:
    if not first:
        carry_out(planned(home, replace(ANSWERS, agents=("codex", "llm"), port=1)))
    before, data = snapshot(home), snapshot(home / "data")
    step = Fails(error)
    with pytest.raises(type(error)):
        carry_out(planned(home), step)
    assert step.taken_back
    assert snapshot(home) == before
    assert snapshot(home / "data") == data


KILLED = """
import os, sys
from pathlib import Path
from burnish.parts.desktop.init.carrying_out import carry_out
from tests.parts.desktop.init.test_setup import planned

class Killed:
    def take(self):
        os._exit(9)

carry_out(planned(Path(sys.argv[1])), Killed())
"""


def test_after_a_crash_everything_can_be_undone(home: Path) -> None:
    before = snapshot(home)
    root = Path(__file__).parents[4]
    done = subprocess.run([sys.executable, "-c", KILLED, str(home)], cwd=root, check=False)
    assert done.returncode == 9
    assert snapshot(home) != before
    undo(home / "data")
    assert snapshot(home) == before


def test_a_file_that_changes_under_the_plan_takes_everything_back(home: Path) -> None:
    before, plan = snapshot(home), planned(home)
    rl = home / ".claude/commands/rl.md"
    rl.write_text("somebody else's")
    with pytest.raises(ConfigError, match="another program"):
        carry_out(plan)
    rl.unlink()
    assert snapshot(home) == before


def test_purging_leaves_what_is_not_burnishs(tmp_path: Path) -> None:
    data = tmp_path / "data"
    for name in ("adapters/v0001/adapter.safetensors", "burnish.db", "burnish.db-spill/1", "mine.jsonl"):
        (data / name).parent.mkdir(parents=True, exist_ok=True)
        (data / name).touch()
    assert purge(data) == [data / "mine.jsonl"]
    (data / "mine.jsonl").unlink()
    assert purge(data) == []
    assert not data.exists()


def test_a_broken_record_is_named(tmp_path: Path) -> None:
    (tmp_path / "init.json").write_text(json.dumps({"agents": 1}))
    with pytest.raises(ConfigError, match="the record of burnish init"):
        undo(tmp_path)


def test_a_connection_made_by_hand_outlives_init_unless_the_user_ends_it(tmp_path: Path) -> None:
    changes = AGENTS["codex"].changes(Place("http://127.0.0.1:7777"), Home(tmp_path, {}))
    record = connection.record_file(tmp_path / "data", "codex")
    connect(changes, record)
    carry_out(planned(tmp_path))
    codex = tmp_path / ".codex/config.toml"
    assert ":8788" in codex.read_text()
    undo(tmp_path / "data")
    assert ":7777" in codex.read_text()
    assert connection.recorded(record)
    carry_out(planned(tmp_path))
    disconnect(record)
    undo(tmp_path / "data")
    assert not codex.exists()
