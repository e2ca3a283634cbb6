"""Ctrl-C that is never lost."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event
from types import FrameType


@contextmanager
def ctrl_c() -> Iterator[Event]:
    """Take note of Ctrl-C besides raising KeyboardInterrupt.

    Python drops an exception that a signal raises within a finaliser, which happens: whoever loops looks at the event.
    """
    pressed, before = Event(), signal.getsignal(signal.SIGINT)

    def note(number: int, frame: FrameType | None) -> None:
        pressed.set()
        signal.default_int_handler(number, frame)

    signal.signal(signal.SIGINT, note)
    try:
        yield pressed
    finally:
        signal.signal(signal.SIGINT, before)
