"""What a person types. One file a group of commands; all but ``up`` and ``doctor`` are clients of a running burnish."""

from burnish.proxy.cli.commands import app, main

__all__ = ["app", "main"]
