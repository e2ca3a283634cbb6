"""The log: a tree of messages in SQLite, one writer thread, and the feedback on what hangs in it."""

from burnish.proxy.log.log import Log
from burnish.proxy.log.retention import Keep

__all__ = ["Keep", "Log"]
