"""``burnish demo``: a simulated user says what it likes, burnish learns, and both are shown side by side."""

from burnish.parts.desktop.demo.command import demo

__all__ = ["demo"]
