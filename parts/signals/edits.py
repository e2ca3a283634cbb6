"""Reads what the tools of agents changed: which files and lines, and what git commands do with edits. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, Literal, NamedTuple

from burnish.parts.signals.outcomes import CommandEnd
from burnish.parts.signals.shell import simple_commands

Kind = Literal["changed", "new", "rewritten", "deleted"]
"""rewritten: all of a file that was there, or perhaps was, so nobody knows what went."""


class Edit(NamedTuple):
    path: str
    kind: Kind
    removed: tuple[str, ...] = ()
    """Lines, without the space around them."""
    added: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        return "\n".join((self.path, *self.removed, *self.added))


EDITORS = frozenset({
    "edit", "multiedit", "write", "writefile", "replace", "editor", "editfile", "createfile", "notebookedit",
    "strreplace", "strreplaceeditor", "strreplacebasededittool", "writetofile", "replaceinfile", "applydiff",
    "insertcontent", "searchandreplace", "patch", "applypatch", "singlefindandreplace", "createnewfile",
    "editexistingfile",
})  # fmt: skip
"""Names of tools that change files, in small letters and without underscores."""
PATHS = ("file_path", "filePath", "filepath", "path", "filename", "notebook_path", "target_file")
OLD = ("old_string", "oldString", "old_text", "oldText", "old_str")
NEW = ("new_string", "newString", "new_text", "newText", "new_str")
WHOLE = ("content", "contents", "file_text", "new_source")
PATCHES = ("input", "patch", "patchText")
CREATED = re.compile(r"\b(?:created|new file)\b", re.IGNORECASE)
FAILED = re.compile(
    r"\A\s*(?:<tool_use_error>|\[?error\b|failed\b|\{\s*\"error\"|unsupported call|File \S+ has not been read)",
    re.IGNORECASE,
)
PATCH_FILE = re.compile(r"^\*\*\* (Add|Update|Delete) File: (.+?)\s*$")
PATCH_BEGINS, PATCH_ENDS = "*** Begin Patch", "*** End Patch"

TEST_FOLDERS = frozenset({"test", "tests", "__tests__", "__snapshots__", "spec", "specs", "testing", "e2e"})
TEST_FILE = re.compile(
    r"(?:\A(?:test|conftest)[_.-]?|[._-](?:test|tests|spec|cy)\.|_test\.|Tests?\.\w+\Z|\Atests?\.\w+\Z)"
)
RUNNERS_OWN = frozenset({
    "pytest.ini", "tox.ini", "setup.cfg", "pyproject.toml", "noxfile.py", "package.json", "makefile",
    "justfile", "cargo.toml", ".mocharc.json", "taskfile.yml", "conftest.py", ".pytest.ini", "go.mod",
})  # fmt: skip
"""Files that say how tests are run, in small letters."""
RUNNERS_CONFIG = re.compile(r"\A(?:jest|vitest|vite|karma|playwright|cypress)\.[\w.]*\w+\Z|\A\.coveragerc\Z")


def edits_by(tool: str, arguments: Any, output: str) -> list[Edit]:
    """Return what a call changed; nothing if the tool isn't an editor, or refused."""
    if tool.lower().replace("_", "").replace("-", "") not in EDITORS or FAILED.match(output):
        return []
    if isinstance(arguments, str):
        return list(patched(arguments))
    if not isinstance(arguments, Mapping):
        return []
    if patch := _first(arguments, PATCHES):
        return list(patched(patch))
    return [_edit(path, arguments, output)] if (path := _first(arguments, PATHS)) else []


def patched(text: str) -> Iterator[Edit]:
    """Read a patch as Codex writes it."""
    kind, path = "", ""
    old_lines, new_lines = list[str](), list[str]()

    def ended() -> Iterator[Edit]:
        if kind:
            change: Kind = {"Add": "new", "Delete": "deleted"}.get(kind, "changed")  # type: ignore[assignment]
            yield _changed(path, change, old_lines, new_lines)

    for line in text.splitlines():
        if match := PATCH_FILE.match(line):
            yield from ended()
            kind, path = match[1], match[2]
            old_lines, new_lines = [], []
        elif line.startswith("*** Move to: "):
            yield Edit(path, "deleted")
        elif line.startswith("-"):
            old_lines.append(line[1:])
        elif line.startswith("+"):
            new_lines.append(line[1:])
    yield from ended()


def is_test(path: str) -> bool:
    """Whether a file holds tests, judging by its name and folders."""
    parts = PurePosixPath(path.strip("'\"").replace("\\", "/")).parts
    return bool(parts) and (
        bool(TEST_FOLDERS & {part.lower() for part in parts}) or bool(TEST_FILE.search(parts[-1]))
    )


def says_how_tests_run(path: str) -> bool:
    name = PurePosixPath(path.replace("\\", "/")).name.lower()
    return name in RUNNERS_OWN or bool(RUNNERS_CONFIG.match(name)) or "/.github/workflows/" in f"/{path}"


def _edit(path: str, arguments: Mapping[str, Any], output: str) -> Edit:
    pairs = arguments.get("edits")
    if isinstance(pairs, list):
        whole = [(_first(pair, OLD), _first(pair, NEW)) for pair in pairs if isinstance(pair, Mapping)]
    else:
        whole = [(_first(arguments, OLD), _first(arguments, NEW))]
    replacements = [(old or "", new or "") for old, new in whole if old is not None or new is not None]
    if replacements:
        inserts = not any(old for old, _ in replacements) and arguments.get("insert_line") is None
        kind: Kind = "changed"
        if inserts:  # with no old text, it makes the file
            kind = "new" if CREATED.search(output) else "rewritten"
        old_lines = [line for old, _ in replacements for line in old.splitlines()]
        new_lines = [line for _, new in replacements for line in new.splitlines()]
        return _changed(path, kind, old_lines, new_lines)
    content = _first(arguments, WHOLE)
    kind = "new" if content is not None and CREATED.search(output) else "rewritten"
    return _changed(path, kind, [], (content or "").splitlines())


def _changed(path: str, kind: Kind, old_lines: list[str], new_lines: list[str]) -> Edit:
    """Leave out the lines that stay."""
    old_counts, new_counts = (
        Counter(filter(None, map(str.strip, lines))) for lines in (old_lines, new_lines)
    )
    return Edit(
        path, kind, tuple((old_counts - new_counts).elements()), tuple((new_counts - old_counts).elements())
    )


def _first(arguments: Mapping[str, Any], names: tuple[str, ...]) -> str | None:
    return next((text for name in names if isinstance(text := arguments.get(name), str)), None)


# -- git keeps edits, or takes them back -------------------------------------------------------------------------------

COMMITTED = re.compile(r"^\[[^\]\n]+ ([0-9a-f]{7,40})\]", re.MULTILINE)
"""What ``git commit`` and ``git revert`` say if they made a commit."""
REFUSED = re.compile(r"^(?:error|fatal): ", re.MULTILINE)
EVERYTHING = (".", "./", ":/")
TAKES_VALUE = frozenset({"-C", "-c"})


class Git(NamedTuple):
    """What a command did with the work so far."""

    act: Literal["commit", "revert", "discard", "reset"]
    """discard: files go back to what they were; reset: all do."""
    commit: str = ""
    """The one that was made, or the one that is reverted."""
    files: tuple[str, ...] = ()
    back: bool = False
    """Whether a reset also goes behind commits."""

    @property
    def name(self) -> str:
        return {
            "revert": "git revert",
            "discard": "git checkout or git restore",
            "reset": "git reset --hard",
        }.get(self.act, "git commit")


def gits_in(command: str, outcome: CommandEnd) -> Iterator[Git]:
    """Yield what a command that ended well did."""
    if outcome.code or REFUSED.search(outcome.output):
        return
    for simple in simple_commands(command) or ():
        if simple.program == "git" and (git := _git(simple.words[1:], outcome.output)):
            yield git


def _git(words: Sequence[str], output: str) -> Git | None:
    arguments = list(words)
    while arguments and arguments[0].startswith("-"):
        arguments = arguments[2:] if arguments[0] in TAKES_VALUE else arguments[1:]
    subcommand, options = (arguments[0], arguments[1:]) if arguments else ("", [])
    if subcommand == "commit" and (hashes := COMMITTED.findall(output)):
        return Git("commit", hashes[-1])
    names = [option for option in options if not option.startswith("-")]
    if subcommand == "revert" and COMMITTED.search(output) and names:
        return Git("revert", names[0])
    if subcommand == "reset" and "--hard" in options:
        return Git("reset", back=bool(names) and names[0] != "HEAD")
    if subcommand == "checkout" and ("--" in options or options[-1:] == ["."]):
        return Git(
            "discard", files=tuple(options[options.index("--") + 1 :] if "--" in options else options[-1:])
        )
    if subcommand == "restore" and not {"--staged", "-S", "-p", "--patch"} & set(options):
        return Git("discard", files=tuple(names))
    return None


def covers(files: Sequence[str], path: str) -> bool:
    """Whether files named on a command line cover a path, which may be absolute."""
    for file in files:
        bare = file.removeprefix("./").rstrip("/")
        if file in EVERYTHING or path == bare or path.endswith(f"/{bare}") or f"/{bare}/" in f"/{path}":
            return True
    return False
