"""Name the command that installs burnish again, or one of its extras, in the way in which it was installed."""

from __future__ import annotations

import json
import shlex
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlsplit

NAME = "burnish"
TRAINING = ("torch", "transformers", "peft", "accelerate")
"""What the extra train brings."""


def missing_for_training() -> list[str]:
    """Return the packages that training lacks. MLX trains without torch."""
    missing = [name for name in TRAINING if find_spec(name) is None]
    return [] if find_spec("mlx_lm") else missing


def how_to_install(extra: str | None = None) -> str:
    """Return a shell command that installs burnish again from the same source, and an extra with it."""
    extras = {extra} if extra else set()
    source, editable = _source()
    environment = Path(sys.prefix)
    if (receipt := environment / "uv-receipt.toml").is_file():
        return f"uv tool install --force {_wanted(extras | _extras_in(receipt), source)}"
    if (environment / "pipx_metadata.json").is_file():
        return f"pipx install --force {_wanted(extras, source)}"
    pip = f"{shlex.quote(sys.executable)} -m pip install"
    if editable and source:
        return f"{pip} -e {shlex.quote(source + _listed(extras))}"
    return f"{pip} {_wanted(extras, source)}"


def _wanted(extras: set[str], source: str | None) -> str:
    name = NAME + _listed(extras)
    return f'"{name} @ {source}"' if source else f'"{name}"'


def _listed(extras: set[str]) -> str:
    return f"[{','.join(sorted(extras))}]" if extras else ""


def _source() -> tuple[str | None, bool]:
    """Return burnish's source as pip wants it, and whether that is an editable checkout (PEP 610).

    Without a source, burnish came from a package index.
    """
    try:
        text = distribution(NAME).read_text("direct_url.json")
        found = json.loads(text) if text else {}
        url = str(found["url"])
        if found.get("dir_info", {}).get("editable"):
            return unquote(urlsplit(url).path), True
        if version_control := found.get("vcs_info"):
            revision = version_control.get("requested_revision")
            return f"{version_control['vcs']}+{url}" + (f"@{revision}" if revision else ""), False
        return url, False
    except (PackageNotFoundError, ValueError, LookupError, TypeError, AttributeError):
        return None, False


def _extras_in(receipt: Path) -> set[str]:
    try:
        wanted = tomllib.loads(receipt.read_text("utf-8"))["tool"]["requirements"]
        return {extra for each in wanted if each["name"] == NAME for extra in each.get("extras", ())}
    except (OSError, ValueError, LookupError, TypeError):
        return set()
