"""``burnish init``: set burnish up for its user, and take that back."""

from burnish.proxy.cli.init.command import init

__all__ = ["init"]
