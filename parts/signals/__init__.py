"""Environment signals: what the tools of coding agents find out becomes feedback, if ``[signals]`` is on."""

from burnish.parts.signals.following import Signals

__all__ = ["Signals"]
