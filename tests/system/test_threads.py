"""Work that holds whole adapters in memory is done one after the other, in the same thread."""

from __future__ import annotations

import asyncio
import threading
import time

from burnish.system.threads import in_one_thread


async def test_pieces_of_work_share_one_thread_and_never_overlap():
    under_way, threads = 0, set[int]()

    def work(number: int) -> int:
        nonlocal under_way
        under_way += 1
        assert under_way == 1
        threads.add(threading.get_ident())
        time.sleep(0.002)
        under_way -= 1
        return number

    assert await asyncio.gather(*(in_one_thread(work, n) for n in range(20))) == list(range(20))
    assert len(threads) == 1
    assert threads != {threading.get_ident()}


async def test_cancelled_work_is_not_begun():
    release, done = threading.Event(), list[str]()
    first = asyncio.ensure_future(in_one_thread(release.wait))
    second = asyncio.ensure_future(in_one_thread(done.append, "second"))
    await asyncio.sleep(0)
    second.cancel()
    await asyncio.sleep(0)
    release.set()
    await first
    await in_one_thread(done.append, "third")
    assert done == ["third"]
