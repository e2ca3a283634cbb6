"""Which slow suites run: each only when something changed that it depends on, or when it passed long ago."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import ci
import pytest
import rooms

from tests.support.execute import execute

ROOT = Path(__file__).parents[1]
ROOM = rooms.Room(("tests/room/test_*.py",), ("data.txt",), ("burnish.apart",))
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
    record(tmp_path)
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


def record(project: Path, name: str = "room") -> str:
    return str(rooms.record_pass(name, ROOM, project, rooms.digest(ROOM, project), 60.0))


def old(project: Path, name: str = "room") -> bool:
    return bool(rooms.state(name, ROOM, project).old)


def recorded(project: Path) -> Any:
    return json.loads((project / rooms.RECORD).read_bytes())


@pytest.mark.parametrize("name", sorted(FILES))
def test_a_room_depends_on_its_files_and_on_what_they_import_at_any_depth(project: Path, name: str) -> None:
    assert not old(project)
    write(project, name, FILES[name] + "\n")
    rooms.imported.cache_clear()
    assert old(project) is (name in REACHED)


def test_a_file_that_comes_or_goes_makes_it_old(project: Path) -> None:
    write(project, "tests/room/test_more.py", "")
    assert old(project)
    (project / "tests/room/test_more.py").unlink()
    assert not old(project)
    (project / "data.txt").unlink()
    assert old(project)


def test_a_change_that_is_taken_back_needs_no_second_run_however_many_commits_later(project: Path) -> None:
    for number in range(rooms.KEPT - 1):
        write(project, "data.txt", f"{number}")
        assert old(project)
        commit(project)
        assert "Commit it" in record(project)
        assert not old(project)
    write(project, "data.txt", "data")
    assert not old(project)
    write(project, "data.txt", "one more")
    commit(project)
    record(project)
    assert len(recorded(project)["room"]) == rooms.KEPT
    write(project, "data.txt", "data")
    assert old(project), "only so many passes are kept"


@pytest.mark.parametrize(
    ("days", "expected"),
    [
        (0, False),
        (rooms.MAX_AGE_DAYS, False),
        (rooms.MAX_AGE_DAYS + 1, True),
        (-1, False),
        (-3, True),
        (None, True),
    ],
)
def test_a_pass_counts_for_fourteen_days_and_not_without_a_date(
    project: Path, days: int | None, expected: bool
) -> None:
    content = recorded(project)
    del content["room"][0]["on"]
    if days is not None:
        content["room"][0]["on"] = (datetime.now(UTC).date() - timedelta(days=days)).isoformat()
    write(project, str(rooms.RECORD), json.dumps(content))
    assert old(project) is expected


@pytest.mark.parametrize("spoilt", ["", "{", "[]", '{"room": "passed"}', '{"room": [{"digest": 1}]}'])
def test_it_is_old_if_the_record_cannot_be_used(project: Path, spoilt: str) -> None:
    write(project, str(rooms.RECORD), spoilt)
    assert old(project)
    assert "Commit it" in record(project)
    assert not old(project)


def test_a_record_keeps_the_other_rooms(project: Path) -> None:
    record(project, "another")
    assert not old(project)
    assert not old(project, "another")


@pytest.mark.parametrize("name", ["src/burnish/unrelated.py", "a new file"])
def test_only_the_tree_of_a_commit_is_recorded(project: Path, name: str) -> None:
    commit(project)
    (project / rooms.RECORD).unlink()
    write(project, name, "not committed")
    assert f"this isn't the tree of a commit: {name}" in record(project)
    assert old(project)
    commit(project)
    assert "Commit it" in record(project), "a record that changes doesn't count"
    assert not old(project)


def test_nothing_is_recorded_if_a_file_changed_while_the_tests_ran(project: Path) -> None:
    before = rooms.digest(ROOM, project)
    write(project, "data.txt", "other")
    commit(project)
    assert "changed meanwhile" in rooms.record_pass("room", ROOM, project, before, 60.0)
    assert old(project)


PYTHON = f"""#!/bin/sh
[ "$2" != pytest ] || exec test ! -e broken
exec {sys.executable} "$@"
"""
"""The Python of a checkout in which all tests pass, unless there is a file "broken"."""


@pytest.fixture
def clone(project: Path) -> Path:
    """A repository with the real scripts, whose rooms are empty."""
    for name in ("rooms.py", "test"):
        write(project, f"scripts/{name}", (ROOT / "scripts" / name).read_text())
    write(project, "scripts/install", "#!/bin/sh\n")
    write(project, ".venv/bin/python", PYTHON)
    write(project, ".gitignore", ".venv\nbroken\n__pycache__\n")
    for name in ("scripts/install", "scripts/test", ".venv/bin/python"):
        (project / name).chmod(0o755)
    commit(project)
    return project


def run_room(clone: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return execute("scripts/test", "--room", "training", *options, cwd=clone)


def test_a_room_that_passes_is_recorded_where_it_ran(clone: Path) -> None:
    done = run_room(clone)
    assert (done.returncode, done.stderr) == (0, "")
    assert "training passed, and .ci/rooms.json says so now" in done.stdout
    (passed,) = recorded(clone)["training"]
    assert passed["digest"] == rooms.digest(rooms.ROOMS["training"], clone)


def test_a_room_that_fails_or_runs_in_part_is_not_recorded(clone: Path) -> None:
    assert "passed with options, so nothing is recorded" in run_room(clone, "-x").stdout
    (clone / "broken").touch()
    assert run_room(clone).returncode == 1
    assert "training" not in recorded(clone)
    assert run_room(clone, "--room").returncode == 1
    unknown = execute("scripts/test", "--room", "attic", cwd=clone)
    assert (unknown.returncode, "rooms are training page" in unknown.stderr) == (2, True)


SUITE = """#!/bin/sh
[ "$1" != --install ] || exit 0
echo "$*" >> ran.txt
[ "$*" != "--room room" ] || ! grep -q broken data.txt
"""


@pytest.fixture
def checkout(project: Path) -> Path:
    """A repository with a CI whose only suite fails if its data is broken."""
    for name, content in (("test", SUITE), ("check", "#!/bin/sh\n"), ("install", "#!/bin/sh\n")):
        write(project, f"scripts/{name}", content)
        (project / "scripts" / name).chmod(0o755)
    write(project, ".gitignore", "ran.txt\n")
    commit(project)
    return project


def ran(checkout: Path) -> list[str]:
    return (checkout / "ran.txt").read_text().splitlines()


def test_ci_runs_a_room_that_is_old_and_one_that_is_not(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(checkout, "data.txt", "other")
    commit(checkout)
    both = {"room": ROOM, "twin": replace(ROOM, alone=True)}
    record(checkout, "twin")
    assert ci.main(checkout, both) == 0
    assert sorted(ran(checkout)[:3]) == ["--package -q", "--room room", "-q"]
    assert ran(checkout)[3:] == ["--room twin"]
    lines = capsys.readouterr().out.splitlines()
    assert any("room: runs (last time 1 min 00 s)" in line for line in lines), lines
    assert any("twin: runs, chosen by the commit's hash" in line for line in lines), lines
    assert set(recorded(checkout)["steps"]) == {"install", "check", "ordinary", "package"}


def test_ci_finds_a_false_record(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(checkout, "data.txt", "broken")
    commit(checkout)
    record(checkout)
    assert not old(checkout)
    assert ci.main(checkout, {"room": ROOM}) == 1
    assert "says that it passed with these very files, which is false" in capsys.readouterr().out


def test_ci_checks_no_fresh_room_once_half_an_hour_is_over(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = ci.Run(checkout, {"room": ROOM})
    run.began -= ci.SPOT_CHECK_WITHIN_S
    ci.carry_out(run)
    assert ran(checkout) == ["-q", "--package -q"]
    assert "room won't run" in capsys.readouterr().out


def test_ci_checks_no_fresh_room_on_a_machine_that_would_need_half_an_hour_for_the_rest(
    checkout: Path,
) -> None:
    run = ci.Run(checkout, {"room": ROOM}, took_s={"check": 60.0})
    assert ci.time_for_spot_check(run, {"check": 60.0, "ordinary": 600.0})
    assert ci.time_for_spot_check(run, {})
    assert not ci.time_for_spot_check(run, {"check": 20.0, "ordinary": 600.0})


@pytest.mark.parametrize("failing", ["install", "check", "test"])
def test_ci_ends_with_the_first_failure(
    checkout: Path, failing: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write(checkout, f"scripts/{failing}", "#!/bin/sh\nexit 3\n")
    commit(checkout)
    assert ci.main(checkout, {"room": ROOM}) == 1
    *_, last = capsys.readouterr().out.splitlines()
    assert "ended with status 3" in last or "was not installed" in last
    assert not (checkout / "ran.txt").exists()


def test_the_commit_chooses_among_the_rooms_that_are_not_old() -> None:
    states = {name: rooms.State(name == "b", "") for name in "abcd"}
    assert {ci.spot_check(states, f"{number:x}") for number in range(9)} == {"a", "c", "d"}
    assert ci.spot_check({"b": rooms.State(True, "")}, "0") is None


@pytest.mark.parametrize(
    ("name", "within", "outside"),
    [
        (
            "training",
            ["training/loop.py", "adapters/convert/merge.py"],
            ["app/app.py", "parts/page/files/main.js"],
        ),
        (
            "page",
            ["parts/page/files/main.js", "proxy/feedback/routes.py"],
            ["training/loop.py", "cli/train.py"],
        ),
        ("engines", ["adapters/hosts/vllm.py", "training/loop.py"], ["app/app.py"]),
        (
            "clients",
            ["proxy/relay/relay.py", "app/app.py", "parts/connect/agents.py", "docs/agents.md"],
            ["training/loop.py", "parts/page/files/main.js", "parts/page/events.py", "learner/cycle.py"],
        ),
        ("learning", ["training/loop.py", "learner/export.py"], ["proxy/relay/relay.py"]),
    ],
)
def test_the_real_rooms_are_neither_empty_nor_everything(
    name: str, within: list[str], outside: list[str]
) -> None:
    files = {str(path.relative_to(ROOT)) for path in rooms.closure(rooms.ROOMS[name], ROOT)}
    assert {*within, "constraints.txt"} <= files
    assert not files & set(outside)
    for glob in (*rooms.ROOMS[name].tests, *rooms.ROOMS[name].files):
        assert list(ROOT.glob(glob)), f"{glob} names no file"


def test_every_test_file_is_ordinary_or_in_one_room() -> None:
    tests = {str(path.relative_to(ROOT)) for path in ROOT.glob("tests/**/test_*.py")}
    of_rooms = [name for room in rooms.ROOMS for name in rooms.pytest_arguments(room, ROOT)]
    left_out = {each.removeprefix("--ignore=") for each in rooms.pytest_arguments("ordinary", ROOT)}
    assert len(of_rooms) == len(set(of_rooms))
    assert set(of_rooms) == left_out < tests
