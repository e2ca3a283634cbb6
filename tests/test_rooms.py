"""Which slow suites CI runs: each only when something changed that it depends on, or when it passed long ago."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
spec = importlib.util.spec_from_file_location("rooms", ROOT / "scripts" / "rooms.py")
assert spec
assert spec.loader
rooms = importlib.util.module_from_spec(spec)
sys.modules["rooms"] = rooms
spec.loader.exec_module(rooms)

ROOM = rooms.Room(("tests/room/*.py", "data.txt"), ("burnish.apart",))
FILES = {
    "tests/room/test_it.py": "import burnish.one\nfrom burnish.apart import thing\n",
    "data.txt": "data",
    "src/burnish/__init__.py": "",
    "src/burnish/one.py": "def late():\n    from burnish.package.two import name\n",
    "src/burnish/package/__init__.py": "from burnish.package import beside\n",
    "src/burnish/package/two.py": "name = 1\n",
    "src/burnish/package/beside.py": "import json\n",
    "src/burnish/apart.py": "import burnish.behind\n",
    "src/burnish/behind.py": "",
    "src/burnish/unrelated.py": "",
}
REACHED = set(FILES) - {f"src/burnish/{name}.py" for name in ("apart", "behind", "unrelated")}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository on whose first commit the room passed."""
    git(tmp_path, "init", "-q")
    for name, content in FILES.items():
        write(tmp_path, name, content)
    commit(tmp_path)
    rooms.record_passed("room", ROOM, tmp_path)
    return tmp_path


def git(project: Path, *arguments: str) -> None:
    who = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *who, *arguments], cwd=project, check=True, capture_output=True)


def commit(project: Path) -> None:
    git(project, "add", "-A")
    git(project, "commit", "-q", "--allow-empty", "-m", "more")


def write(project: Path, name: str, content: str) -> None:
    path = project / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)


@pytest.mark.parametrize("name", sorted(FILES))
def test_a_room_depends_on_its_files_and_on_what_they_import_at_any_depth(project: Path, name: str) -> None:
    assert rooms.decide("room", ROOM, project)[0] is False
    write(project, name, FILES[name] + "\n")
    commit(project)
    due, why = rooms.decide("room", ROOM, project)
    assert due is (name in REACHED), why


def test_a_file_that_comes_or_goes_makes_it_due(project: Path) -> None:
    write(project, "tests/room/test_more.py", "")
    assert rooms.decide("room", ROOM, project)[0]
    (project / "tests/room/test_more.py").unlink()
    assert not rooms.decide("room", ROOM, project)[0]
    (project / "data.txt").unlink()
    assert rooms.decide("room", ROOM, project)[0]


def test_after_thirty_commits_it_is_due_whatever_changed(project: Path) -> None:
    for _ in range(rooms.MAX_AGE):
        commit(project)
    assert rooms.decide("room", ROOM, project)[0] is False
    commit(project)
    assert rooms.decide("room", ROOM, project) == (True, "it last passed 31 commits ago")


def _another_history(project: Path) -> None:
    git(project, "checkout", "-q", "--orphan", "other")
    commit(project)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda project: (project / rooms.RECORD).unlink(),
        lambda project: (project / rooms.RECORD).write_text("{"),
        lambda project: (project / rooms.RECORD).write_text("[]"),
        lambda project: (project / rooms.RECORD).write_text('{"room": {"digest": "of no commit"}}'),
        lambda project: (project / rooms.RECORD).write_text(
            (project / rooms.RECORD).read_text().replace('"commit": "', '"commit": "0')
        ),
        _another_history,
    ],
    ids=["no file", "no JSON", "a list", "no commit", "unknown commit", "another history"],
)
def test_it_is_due_when_the_record_cannot_be_used(project: Path, spoil: Callable[[Path], object]) -> None:
    spoil(project)
    due, why = rooms.decide("room", ROOM, project)
    assert due
    assert "passed" in why


def test_a_record_keeps_the_other_rooms(project: Path) -> None:
    rooms.record_passed("another", ROOM, project)
    assert not rooms.decide("room", ROOM, project)[0]
    assert not rooms.decide("another", ROOM, project)[0]


@pytest.mark.parametrize(
    ("name", "within", "outside"),
    [
        ("engines", ["adapters/hosts/vllm.py", "training/loop.py"], ["proxy/app.py"]),
        ("clients", ["proxy/relay/relay.py", "docs/agents.md"], ["training/loop.py"]),
        ("learning", ["training/loop.py", "proxy/learner/export.py"], ["proxy/relay/relay.py"]),
    ],
)
def test_the_real_rooms_are_neither_empty_nor_everything(
    name: str, within: list[str], outside: list[str]
) -> None:
    found = {str(path.relative_to(ROOT)) for path in rooms.closure(rooms.ROOMS[name], ROOT)}
    assert {*within, "constraints.txt"} <= found
    assert not found & set(outside)
    for glob in rooms.ROOMS[name].files:
        assert list(ROOT.glob(glob)), f"{glob} names no file"
