"""The log: a tree of messages in SQLite, one writer thread, and the feedback on what hangs in it."""

from burnish.proxy.log.log import Log

__all__ = ["Log"]
