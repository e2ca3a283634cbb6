"""The environment of child processes: no variables that hold keys."""

from __future__ import annotations

import os
import re

INHERITED = re.compile(
    "(LD|DYLD|OMP|KMP|GOMP|GGML|CUDA|NVIDIA|HIP|HSA|ROCR|VK|LC)_.*|PYTHON[A-Z]+|LANG|HOME|PATH|TMPDIR|VIRTUAL_ENV"
)
"""Libraries, threads, devices and folders."""


def for_child() -> dict[str, str]:
    return {name: text for name, text in os.environ.items() if INHERITED.fullmatch(name)}
