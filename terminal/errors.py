"""How a command fails: a sentence on stderr and an exit code."""

from __future__ import annotations

from typing import ClassVar


class CommandFailed(Exception):
    """Exit code 1."""

    exit_code: ClassVar[int] = 1


class WrongUsage(CommandFailed, ValueError):
    """Wrong arguments or settings. Exit code 2, as for unknown options."""

    exit_code = 2


class NotRunning(CommandFailed, ConnectionError):
    """Exit code 3."""

    exit_code = 3


class Interrupted(CommandFailed):
    """The user pressed Ctrl-C or said no. Exit code 130, as in shells."""

    exit_code = 130
