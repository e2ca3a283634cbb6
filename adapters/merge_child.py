"""One merge. Run as ``python -m burnish.adapters.merge_child`` by ``merging``.

Reads one line of JSON from stdin, ``[adapter, base, target]``, and prints one: the fields of ``Merged``, or
``{"error", "message"}``. If the base is a directory, so is the target. When stdin closes, because the parent ended in
whatever way, it stops and leaves nothing.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from burnish.adapters.errors import AdapterError, EngineError
from burnish.system.parent import end_with_parent

NICENESS = 10
"""Requests go first: nobody waits for a merge."""
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
"""Several would spin while they wait for each other. On a busy machine that made a merge six times as long."""


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for burnish, which ends this process
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # unwinds, so the half-written file is removed
    os.nice(NICENESS)
    os.environ |= ONE_THREAD
    adapter, base, target = map(Path, json.loads(sys.stdin.buffer.readline()))
    end_with_parent(lambda: os.kill(os.getpid(), signal.SIGTERM))
    print(json.dumps(_answer(adapter, base, target)))  # noqa: T201


def _answer(adapter: Path, base: Path, target: Path) -> dict[str, Any]:
    # Imported here, because numpy reads the number of threads once.
    from burnish.adapters.convert.merge import merge_rounded
    from burnish.adapters.convert.merge_hf import merge_hf

    merge = merge_hf if base.is_dir() else merge_rounded
    try:
        return asdict(merge(adapter, base, target))
    except AdapterError as error:
        return {"error": type(error).__name__, "message": str(error)}
    except MemoryError:
        return {"error": EngineError.__name__, "message": "memory ran out; close other programs first"}


if __name__ == "__main__":
    main()
