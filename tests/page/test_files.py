"""The files of the page: their size, where they come from, and what they must not do."""

from __future__ import annotations

import gzip
import hashlib
import re
from pathlib import Path

import pytest

from burnish.proxy.page.assets import served

FILES = Path(__file__).parents[2] / "proxy" / "page" / "files"
BUDGET_BYTES = 120_000
"""Of everything that a browser may load, compressed."""
LOADED = sorted(path for path in FILES.rglob("*") if path.suffix in (".html", ".css", ".js", ".svg"))
OURS = [path for path in LOADED if path.parent.name != "vendor"]
# Each would let the text of a model become part of the document, or is refused by the content security policy.
FORBIDDEN = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|dangerouslySetInnerHTML|document\.write|DOMParser|createContextualFragment"
    r"|\beval\(|new Function|\son[a-z]+=\"|\sstyle=\"|<script(?! type=\"module\" src=)|javascript:"
)
ELSEWHERE = re.compile(r"https?://(?!www\.w3\.org/)")


def test_everything_together_stays_small() -> None:
    contents = {path.relative_to(FILES).as_posix(): path.read_bytes() for path in LOADED}
    sizes = {name: len(gzip.compress(served(name, content))) for name, content in contents.items()}
    assert sum(sizes.values()) <= BUDGET_BYTES, sizes


def test_comments_of_our_scripts_are_not_served_and_lines_keep_their_numbers() -> None:
    script = b"// What it is for.\nconst rest = one; // why\n  // more\nrun(rest);\n"
    assert served("main.js", script) == b"\nconst rest = one; // why\n\nrun(rest);\n"
    assert served("vendor/preact.js", script) == script


def test_vendored_files_are_what_their_table_says() -> None:
    table = (FILES / "vendor" / "README.md").read_text(encoding="utf-8")
    told = dict(re.findall(r"\| `([\w.]+)` \|.*\| `([0-9a-f]{64})` \|", table))
    vendored = [path for path in LOADED if path.parent.name == "vendor"]
    assert told == {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in vendored}


@pytest.mark.parametrize("path", OURS, ids=lambda path: path.relative_to(FILES).as_posix())
def test_text_stays_text_and_nothing_comes_from_elsewhere(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert not FORBIDDEN.findall(text)
    assert not ELSEWHERE.findall(text)
