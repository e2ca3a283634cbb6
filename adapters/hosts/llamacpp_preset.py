"""The preset file of a llama.cpp router (models.ini): sections are added and removed, all else stays as it is.

The text is edited line by line, because an INI library would drop other people's comments and order. At a reload the
router ends the models whose options changed, so only our own sections may differ.
"""

from __future__ import annotations

import fcntl
import re
import stat
from collections.abc import Callable, Sequence
from pathlib import Path

from burnish.adapters.errors import EngineError
from burnish.system import durable
from burnish.system.regular import SETTINGS_BYTES, check_regular

_HEADER = re.compile(r"\s*\[(?P<name>[^\]]+)\]")
_OPTION = re.compile(r"\s*(?P<key>[^\s=#;\[]+)\s*=")
_COMMENT = "# burnish serves a version here, and removes this section when it is unloaded\n"

# Options of a base that its versions don't take over: a second model with the same alias makes the router's reload fail
# (and its next load hang), and versions are loaded by us, not at its start.
_NOT_COPIED = frozenset({"alias", "a", "llama-arg-alias", "tags", "llama-arg-tags", "load-on-startup"})
_ADAPTERS = frozenset({"lora", "lora-scaled", "llama-arg-lora", "llama-arg-lora-scaled"})

# With one of these in its path, a file would be read as several, as a comment, or as another section.
_UNSAFE = re.compile(r"[,;#\r\n]")


def options(text: str, section: str) -> list[str]:
    """Return the lines that a version takes over from its base's section. Raises EngineError if that has an adapter."""
    lines = text.splitlines()
    headers = [n for n, line in enumerate(lines) if _name(line) == section]
    if not headers:
        raise EngineError(f"it has no section [{section}]; add one with model = <the GGUF of {section}>")
    settings = []
    for line in lines[headers[0] + 1 :]:
        if _HEADER.match(line):
            break
        option = _OPTION.match(line)
        if option is None:
            continue
        key = option["key"].lstrip("-").lower().replace("_", "-")
        if key in _ADAPTERS:
            raise EngineError(
                f"its section [{section}] already has an adapter ({line.strip()}); versions are trained on the "
                "base model without adapters, so give that a section of its own"
            )
        if key not in _NOT_COPIED:
            settings.append(line.strip())
    return settings


def base_alone(name: str, model: Path) -> str:
    """Return a preset with one model, which the router loads when it starts. Raises EngineError."""
    if _UNSAFE.search(str(model)):
        raise EngineError(
            f"llama.cpp can't read a model at {model}, because its path has , ; or # in it: move it"
        )
    return f"[{name}]\nmodel = {model}\nload-on-startup = true\n"


def with_version(text: str, name: str, base: str, adapter: Path) -> str:
    """Return the text with a section for a version: its base's options, and its adapter. Idempotent."""
    if _UNSAFE.search(str(adapter)):
        raise EngineError(
            f"llama.cpp can't read an adapter at {adapter}, because its path has , ; or # in it; use another directory"
        )
    text = without_version(text, name)
    block = "".join(f"{line}\n" for line in [*options(text, base), f"lora = {adapter}"])
    gap = "" if not text or text.endswith("\n") else "\n"
    return f"{text}{gap}\n{_COMMENT}[{name}]\n{block}"


def without_version(text: str, name: str) -> str:
    """Return the text without a version's section, as it was before; do nothing if there is none."""
    lines = text.splitlines(keepends=True)
    start = next((n for n, line in enumerate(lines) if _name(line) == name), None)
    if start is None:
        return text
    end = start + 1
    while end < len(lines) and _OPTION.match(lines[end]):
        end += 1  # up to the first line that is not ours
    if start and lines[start - 1] == _COMMENT:
        start -= 1
        if start and not lines[start - 1].strip():
            start -= 1
    return "".join(lines[:start] + lines[end:])


def edit(preset: Path, change: Callable[[str], str]) -> None:
    """Change a preset atomically, one editor at a time on this machine. Raises EngineError."""
    try:
        target = preset.resolve()
        # A file beside the preset, because every edit replaces the preset itself.
        with target.with_name(f".{target.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # two proxies may share one router; released with the file
            check_regular(preset, SETTINGS_BYTES)
            text = preset.read_bytes().decode()
            new_text = change(text)
            if new_text != text:
                durable.replace(target, new_text, stat.S_IMODE(target.stat().st_mode))
    except EngineError as error:
        raise EngineError(f"{preset}: {error}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise EngineError(
            f"cannot change the router's preset {preset}: {error}; give burnish permission to write it"
        ) from error


def sections(preset: Path) -> Sequence[str]:
    """Return the names of the sections; none if the file can't be read."""
    try:
        check_regular(preset, SETTINGS_BYTES)
        return [name for line in preset.read_text().splitlines() if (name := _name(line))]
    except (OSError, UnicodeDecodeError):
        return []


def _name(line: str) -> str | None:
    header = _HEADER.match(line)
    return header["name"].strip() if header else None
