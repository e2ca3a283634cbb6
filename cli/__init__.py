"""The command line. One file per group of commands; most commands are clients of a running burnish."""

from burnish.cli.commands import app, main

__all__ = ["app", "main"]
