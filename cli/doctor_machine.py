"""Checks of this machine: Python, packages, model, memory, disk, clock."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

from burnish.adapters.errors import AdapterError
from burnish.adapters.hosts.fetch import SMALL_MODEL_DIGEST, file_digest, small_model_path
from burnish.adapters.hosts.hub_cache import cached
from burnish.adapters.hosts.model_file import hub_model, model_file
from burnish.config.config import Config
from burnish.proxy.data_dir import prepare
from burnish.proxy.http.errors import BurnishError
from burnish.system.extras import TRAINING, how_to_install, how_to_repair
from burnish.system.memory import available_bytes
from burnish.training.device import framework_here

GIB = 1024**3
# The trainer peaks at 2.5 GB with the small model, beside engine and proxy.
MEMORY_NEEDED = 4 * GIB
# Weights for training, a few versions, and a log that grows.
DISK_NEEDED = 2 * GIB
# With less, the next version or the next day's log doesn't fit.
DISK_LEAST = GIB // 4
# torch takes seconds to import on a cold disk.
IMPORT_LIMIT_S = 120.0
# A file further in the future means a wrong clock; file systems and clocks disagree by less.
CLOCK_SLACK_S = 60.0


Level = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class Finding:
    level: Level
    """warn: something is missing or will soon fail; fail: it doesn't work."""
    what: str
    text: str
    """What was found and, unless it is fine, what to do."""


def data_dir(config: Config) -> Finding:
    """Check that the data directory can be created, written, and closed to other users."""
    try:
        prepare(config.data_dir)
    except BurnishError as error:
        return Finding("fail", "data", str(error))
    return Finding("ok", "data", f"{config.data_dir}, for you only")


def disk(config: Config) -> Finding:
    existing = next(path for path in (config.data_dir, *config.data_dir.parents) if path.exists())
    free = shutil.disk_usage(existing).free
    text = f"{free / GIB:.1f} GiB free for {config.data_dir}"
    if free >= DISK_NEEDED:
        return Finding("ok", "disk", text)
    level: Level = "fail" if free < DISK_LEAST else "warn"
    return Finding(level, "disk", f"{text}: make room, or set data_dir to a larger disk")


def clock(config: Config) -> Finding:
    """Check that no file is newer than the clock, because IDs and ratings are ordered by time."""
    now_s = time.time()
    mtimes = [path.stat().st_mtime for path in (*config.data_dir.glob("burnish.db*"), Path(__file__))]
    today = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    if max(mtimes) <= now_s + CLOCK_SLACK_S:
        return Finding("ok", "clock", today)
    latest = datetime.fromtimestamp(max(mtimes), UTC)
    return Finding(
        "warn",
        "clock",
        f"{today}, but there are files from {latest:%Y-%m-%d %H:%M}: set the clock, because answers are sorted by time",
    )


def memory(config: Config) -> Finding:
    free = available_bytes()
    if free is None:
        return Finding("ok", "memory", "unknown on this system; training takes up to 2.5 GB")
    text = f"{free / GIB:.1f} GiB available"
    if free >= MEMORY_NEEDED:
        return Finding("ok", "memory", text)
    text += ": training with the small model takes 2.5 GB; close other programs first"
    return Finding("warn", "memory", text)


def model(config: Config) -> Finding:
    if config.model is None and not small_model_path().is_file():
        return Finding("warn", "model", "the small model (98 MB) isn't downloaded yet: `burnish up` does it")
    if config.model and (download := hub_model(config.model)) and not cached(download):
        return Finding("warn", "model", f"{config.model} isn't downloaded yet: `burnish up` does it")
    try:
        path = model_file(config.model).path if config.model else small_model_path()
        digest = file_digest(path)
    except AdapterError as error:
        return Finding("fail", "model", str(error))
    if config.model is None and digest != SMALL_MODEL_DIGEST:
        text = f"{path} is damaged ({digest[:19]}…): `burnish up` downloads it again"
        return Finding("warn", "model", text)
    return Finding("ok", "model", f"{config.model or path.name}, {digest[:19]}…")


def engine(config: Config) -> Finding:
    return _packages("engine", None, ("xllamacpp", "gguf"), "xllamacpp")


def trainer(config: Config) -> Finding:
    if not config.train.enabled:
        return Finding("ok", "training", "turned off")
    if framework_here(config.train.device, config.train.quantize) == "mlx":
        return _packages("training", "mlx", ("mlx", "mlx_lm"), "mlx.core")
    return _packages("training", "train", TRAINING, "torch")


def _packages(what: str, extra: str | None, modules: tuple[str, ...], native: str) -> Finding:
    remedy = how_to_install(extra)
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        return Finding("fail", what, f"{', '.join(missing)} not installed: {remedy}")
    if fault := _import_fault(native):
        text = f"{native} is installed but doesn't load ({fault}); {how_to_repair(fault, extra)}"
        return Finding("fail", what, text)
    return Finding("ok", what, ", ".join(f"{name} {_version(name)}".strip() for name in modules))


def _import_fault(module: str) -> str | None:
    """Import a compiled package in a child process, because one built for another processor would crash this one."""
    try:
        child = subprocess.run(
            [sys.executable, "-c", f"import {module}"],
            capture_output=True,
            text=True,
            timeout=IMPORT_LIMIT_S,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if child.returncode == 0:
        return None
    return (child.stderr.strip().splitlines() or [f"ended with status {child.returncode}"])[-1]


def _version(module: str) -> str:
    try:
        return version(module)
    except PackageNotFoundError:
        return ""
