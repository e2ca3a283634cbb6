"""Reads what the tools of agents changed: which files, and which lines went and came. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any, Literal, NamedTuple

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
