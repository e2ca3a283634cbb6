"""burnish: an OpenAI-compatible inference proxy that learns from ratings."""

__version__ = "0.2.0"
