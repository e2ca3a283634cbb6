"""The demo's questions, for benches and tests."""

from burnish.proxy.cli.questions import BRIEFLY, PROMPTS

__all__ = ["BRIEFLY", "PROMPTS"]
