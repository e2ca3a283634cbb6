"""The demo's questions, for benches and tests."""

from burnish.bench.questions import BRIEFLY, PROMPTS

__all__ = ["BRIEFLY", "PROMPTS"]
