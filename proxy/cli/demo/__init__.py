"""``burnish demo``: a simulated user rates 40 answers, burnish learns, and both are shown side by side."""

from burnish.proxy.cli.demo.command import demo

__all__ = ["demo"]
