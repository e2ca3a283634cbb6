"""The files of the page: their size, where they come from, and what they must not do."""

from __future__ import annotations

import gzip
import hashlib
import re
from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from burnish.parts.page.assets import STYLES, Files, served
from tests.page.site import Site

FILES = Path(__file__).parents[2] / "parts" / "page" / "files"
FIRST_BYTES = 52_000
"""At most of the first view, compressed: the document, the styles, and the modules that it needs."""
ALL_BYTES = 135_000
"""At most of everything that a browser may load: every view, and the libraries for charts and Markdown."""
LOADED = sorted(path for path in FILES.rglob("*") if path.suffix in (".html", ".css", ".js", ".svg"))
OURS = [path for path in LOADED if path.parent.name != "vendor"]
# Each would let the text of a model become part of the document, or is refused by the content security policy.
FORBIDDEN = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|dangerouslySetInnerHTML|document\.write|DOMParser|createContextualFragment"
    r"|\beval\(|new Function|\son[a-z]+=\"|\sstyle=\"|<script(?! type=\"module\" src=)|javascript:"
)
ELSEWHERE = re.compile(r"https?://(?!www\.w3\.org/)")


def test_the_first_view_and_everything_together_stay_small() -> None:
    files = Files()
    files.refresh()
    names = {path.relative_to(FILES).as_posix() for path in LOADED} - {"index.html"}
    sizes = {name: compressed(files.get(name)) for name in {*names, STYLES} if files.get(name)}
    assert names - sizes.keys() == {name for name in names if name.endswith(".css") and "vendor" not in name}
    document = compressed(files.document)
    first = document + sizes[STYLES] + sum(sizes[name] for name in files.needed())
    assert first <= FIRST_BYTES, sizes
    assert document + sum(sizes.values()) <= ALL_BYTES, sizes


def compressed(content: bytes | None) -> int:
    assert content
    return len(gzip.compress(content))


async def test_only_what_is_shown_is_loaded(page: Page, site: Site) -> None:
    files = Files()
    files.refresh()
    loaded: list[str] = []
    page.on("request", lambda request: loaded.extend(re.findall(r"/page/\w+/(.*\.js)$", request.url)))
    await page.goto(site.url)
    await expect(page.get_by_role("heading", name="Live", level=1)).to_be_visible()
    assert sorted(loaded) == files.needed()
    await page.keyboard.press("Shift+H")
    await expect(page.get_by_role("heading", name="Health", level=1)).to_be_visible()
    assert "views/health.js" in loaded


async def test_a_view_that_cannot_be_loaded_says_so(page: Page, site: Site) -> None:
    await page.route("**/views/raters.js", lambda route: route.abort())
    await page.goto(site.url)
    await expect(page.get_by_role("heading", name="Live", level=1)).to_be_visible()
    await page.keyboard.press("Shift+R")
    await expect(page.get_by_text("This view couldn't be loaded.")).to_be_visible()
    await page.unroute("**/views/raters.js")
    await page.get_by_role("button", name="Load the page anew").click()
    await expect(page.get_by_role("heading", name="Raters", level=1)).to_be_visible()


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
