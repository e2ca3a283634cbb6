"""Environment signals: what the tools of coding agents find out becomes feedback, if ``[signals]`` is on."""

from burnish.proxy.signals.following import Signals

__all__ = ["Signals"]
