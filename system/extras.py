"""Name the command that installs burnish again, or one of its extras, in the way in which it was installed."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlsplit

NAME = "burnish"
CHECKOUT = "scripts/install"
"""How to install what isn't installed: a checkout on PYTHONPATH."""
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
    if source is None:
        # The name on an index may be somebody else's: name the packages, and leave burnish as it is.
        needed = requirements(extra)
        return f"{_pip(extras)} {shlex.join(needed)}" if needed else CHECKOUT
    environment = Path(sys.prefix)
    if (receipt := environment / "uv-receipt.toml").is_file():
        extras |= _extras_in(receipt)
        return f"uv tool install --force{_backend(extras)} {_wanted(extras, source)}"
    if (environment / "pipx_metadata.json").is_file():
        return f"pipx install --force {_wanted(extras, source)}"
    if editable:
        return f"{_pip(extras)} -e {shlex.quote(source + _listed(extras))}"
    return f"{_pip(extras)} {_wanted(extras, source)}"


def requirements(extra: str | None) -> list[str]:
    """Return what an extra needs, or burnish itself."""
    from packaging.requirements import Requirement  # only for this message: commands must start fast

    try:
        listed = distribution(NAME).requires or []
    except PackageNotFoundError:
        return []
    return [
        str(requirement).partition(";")[0].strip()
        for requirement in map(Requirement, listed)
        if ("extra" in str(requirement.marker)) is bool(extra)
        and (requirement.marker is None or requirement.marker.evaluate({"extra": extra or ""}))
    ]


def how_to_repair(fault: str, extra: str | None = None) -> str:
    """Return what to do about a compiled package that doesn't load."""
    if "libgomp" in fault:  # slim systems and containers lack it, and llama.cpp's build for Linux needs it
        return "install this system library (Debian and Ubuntu: apt install libgomp1)"
    return f"install it again: {how_to_install(extra)}"


def _pip(extras: set[str]) -> str:
    """Return what installs into this environment: uv if torch is to come and uv is here, else pip."""
    python = shlex.quote(sys.executable)
    neighbour = Path(sys.executable).with_name("uv")
    uv = str(neighbour) if neighbour.is_file() else shutil.which("uv")
    if uv and (backend := _backend(extras)):
        return f"{shlex.quote(uv)} pip install --python {python}{backend}"
    return f"{python} -m pip install"


def _backend(extras: set[str]) -> str:
    """Return uv's option for a torch that fits the GPU. Otherwise torch on Linux brings gigabytes of CUDA."""
    return " --torch-backend=auto" if "train" in extras else ""


def _wanted(extras: set[str], source: str) -> str:
    return f'"{NAME}{_listed(extras)} @ {source}"'


def _listed(extras: set[str]) -> str:
    return f"[{','.join(sorted(extras))}]" if extras else ""


def _source() -> tuple[str | None, bool]:
    """Return burnish's source as pip wants it, and whether that is an editable checkout (PEP 610).

    Without a source, burnish came from a package index.
    """
    try:
        text = distribution(NAME).read_text("direct_url.json")
        source = json.loads(text) if text else {}
        url = str(source["url"])
        if source.get("dir_info", {}).get("editable"):
            return unquote(urlsplit(url).path), True
        if version_control := source.get("vcs_info"):
            revision = version_control.get("requested_revision")
            at = url.replace("file:///", "file://localhost/")  # pip takes no empty host here
            return f"{version_control['vcs']}+{at}" + (f"@{revision}" if revision else ""), False
        return url, False
    except (PackageNotFoundError, ValueError, LookupError, TypeError, AttributeError):
        return None, False


def _extras_in(receipt: Path) -> set[str]:
    try:
        packages = tomllib.loads(receipt.read_text("utf-8"))["tool"]["requirements"]
        return {
            extra for package in packages if package["name"] == NAME for extra in package.get("extras", ())
        }
    except (OSError, ValueError, LookupError, TypeError):
        return set()
