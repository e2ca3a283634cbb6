"""How a command fails: a sentence on stderr and an exit code that means something."""

from __future__ import annotations

from typing import ClassVar


class CommandFailed(Exception):
    """The thing did not work. Exit code 1."""

    exit_code: ClassVar[int] = 1


class WrongUsage(CommandFailed, ValueError):
    """The command was called in a way that cannot work. Exit code 2, as for unknown options."""

    exit_code = 2


class NotRunning(CommandFailed, ConnectionError):
    """No burnish answers. Exit code 3."""

    exit_code = 3


class Interrupted(CommandFailed):
    """The person did not want to wait. Exit code 130, as shells have it."""

    exit_code = 130
