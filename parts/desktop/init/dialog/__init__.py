"""``burnish init``: set burnish up for its user, and take that back."""

from burnish.parts.desktop.init.dialog.command import init

__all__ = ["init"]
