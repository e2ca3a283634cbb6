"""The pages: every relative link and anchor resolves, and tables are current."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from bench.learning.results import PAGE, RECORDS, page
from burnish.cli.commands import COMMANDS, load
from burnish.config.config import Config
from burnish.config.settings import SettingSources

ROOT = Path(__file__).parents[1]
ARCHITECTURE = ROOT / "docs" / "architecture.md"
LLMS = ROOT / "docs" / "llms.txt"
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md"), LLMS])
LISTED_FROM = 22
"""The column in which a listing's files begin."""
LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]*))?\)")
FENCED = re.compile(r"```.*?```", re.DOTALL)


def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub gives the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", FENCED.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("source", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_resolve(source: Path) -> None:
    for target, anchor in LINK.findall(FENCED.sub("", source.read_text())):
        found = (source.parent / target).resolve() if target else source
        assert found.exists(), f"{source.name} links to {target}"
        assert not anchor or anchor in anchors(found), f"{source.name} links to {target}#{anchor}"


def paths_of_listings() -> list[str]:
    """Return what the listings of docs/architecture.md name, each behind the folder that begins its lines."""
    paths: list[str] = []
    folder = ""
    for listing in FENCED.findall(ARCHITECTURE.read_text().partition("## Folders")[2]):
        for line in listing.splitlines()[1:-1]:
            if begin := re.match(r"[\w/]+/", line):
                folder = begin[0]
                paths.append(folder)
            files = re.findall(r"[\w*]+\.(?:py|toml)\b|\b\w+/(?=\s)", line[LISTED_FROM:])
            paths += [folder + name for name in files]
    return paths


def test_the_architecture_page_names_files_and_folders_that_exist() -> None:
    """In backticks, a path may begin at the root or in proxy/."""
    missing = [name for name in paths_of_listings() if not list(ROOT.glob(name))]
    prose = FENCED.sub("", ARCHITECTURE.read_text())
    paths = re.findall(r"`((?:[a-z_]+/)+(?:[a-z_]+(?:\.\w+)?)?|[a-z_]+\.py)`", prose)
    missing += [name for name in paths if not (ROOT / name).exists() and not (ROOT / "proxy" / name).exists()]
    assert len(paths_of_listings()) > 100
    assert paths
    assert not missing


def test_the_tables_of_the_grid_are_current() -> None:
    records = map(json.loads, RECORDS.read_text().splitlines())
    text = PAGE.read_text()
    assert text == page(records, text), "run: python -m bench.learning.results"


def test_every_test_that_a_page_names_exists() -> None:
    defined = set(re.findall(r"def (test_\w+)", "".join(map(Path.read_text, ROOT.glob("tests/**/*.py")))))
    named = set(re.findall(r"::(test_\w+)", "".join(map(Path.read_text, PAGES))))
    assert named
    assert named <= defined
    faults = re.findall(r"`((?:\w+/)*test_\w+\.py)", (ROOT / "docs" / "faults.md").read_text())
    places = [ROOT / "tests" / "proxy", ROOT / "tests", ROOT]
    assert faults
    assert not [file for file in faults if not any((place / file).exists() for place in places)]


def test_llms_txt_has_the_form_of_the_convention_and_links_every_page() -> None:
    """A title, a summary, then sections that hold lists of links: https://llmstxt.org."""
    text = LLMS.read_text()
    assert re.match(r"# burnish\n\n(> .*\n)+\n", text)
    _, *sections = re.split(r"^## .*\n", text, flags=re.MULTILINE)
    listed = [line for section in sections for line in section.splitlines() if line]
    assert all(re.match(r"- \[[^]]+\]\([^)]+\)(: .+)?$", line) for line in listed)
    linked = {target for target, _ in LINK.findall(text)}
    assert linked >= {page.name for page in ROOT.glob("docs/*.md")}


@pytest.mark.parametrize("source", [ROOT / "AGENTS.md", LLMS], ids=lambda path: path.name)
def test_every_command_that_agents_are_told_exists(source: Path) -> None:
    named = re.findall(
        r"burnish ([a-z]+)(?: ([a-z]+))?", "\n".join(re.findall(r"`([^`]*)`", source.read_text()))
    )
    assert named
    for name, second in named:
        assert name in COMMANDS, f"{source.name} names `burnish {name}`"
        if isinstance(subcommands := getattr(load(name), "commands", None), dict):
            assert second in subcommands, f"{source.name} names `burnish {name} {second}`"


def test_every_script_that_agents_are_told_exists() -> None:
    named = set(re.findall(r"`(scripts/\w+|tests/[\w/.]+)", (ROOT / "AGENTS.md").read_text()))
    assert len(named) > 3
    assert all((ROOT / name).exists() for name in named)


def test_every_setting_is_in_a_guide_or_an_example() -> None:
    """A setting that none needs is a constant: take it out."""
    generated = {"configuration.md", "cli.md", "CHANGELOG.md"}
    guides = [page for page in PAGES if page.name not in generated]
    text = "\n".join(map(Path.read_text, [*guides, *ROOT.glob("examples/**/*.py"), ROOT / "compose.yaml"]))
    sources = SettingSources(Config)
    names = {name for name in Config.model_fields if name not in sources.tables and name not in sources.named}
    for table, model in (sources.tables | sources.named).items():
        names |= {name for name in model.model_fields if f"{table}.{name}" not in sources.tables}
    for name in sorted(names):
        flag, variable = f"--{name.replace('_', '-')}", f"_{name.upper()}"
        assert re.search(
            rf"`[^`\n]*\b{name}\b[^`\n]*`|^{name} = |({flag}|{variable})\b", text, re.MULTILINE
        ), name
