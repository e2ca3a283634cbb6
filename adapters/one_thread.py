"""One thread for work that holds whole adapters in memory: converting them, checking their weights.

The C library keeps memory for each thread that ever needed much (glibc's arenas): spread over the threads of
``asyncio.to_thread``, a process that swaps adapters grows by an adapter's size or two for every one of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")

_THREAD = ThreadPoolExecutor(max_workers=1, thread_name_prefix="adapters")


async def in_one_thread(
    work: Callable[_Arguments, _Result], *args: _Arguments.args, **kwargs: _Arguments.kwargs
) -> _Result:
    """Call it there and return what it returns; pieces of work wait for each other. Raises what it raises."""
    return await asyncio.wrap_future(_THREAD.submit(work, *args, **kwargs))
