"""The answers to the questions of ``burnish init``, and the settings that follow from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from burnish.parts.connect.base import Keys


@dataclass(frozen=True, slots=True)
class SetupAnswers:
    agents: tuple[str, ...]
    """Names of the agents that use burnish."""
    upstream: str | None
    """URL of the engine; None: the embedded engine."""
    model: str | None
    """A GGUF file for the embedded engine, else the model that ``default`` stands for; None: burnish chooses."""
    preset: str
    schedule: str
    port: int
    service: bool
    """Whether burnish starts at login."""

    def entries(self) -> list[tuple[Keys, Any]]:
        """Return the keys of the configuration file with their values; None: the key must be absent."""
        return [
            (("upstream",), self.upstream),
            (("model",), self.model),
            (("port",), self.port),
            (("train", "preset"), self.preset),
            (("train", "schedule"), self.schedule),
        ]

    def flags(self) -> dict[str, Any]:
        """Return the settings in the form that ``load_config`` takes."""
        train = {"preset": self.preset, "schedule": self.schedule}
        return {"upstream": self.upstream, "model": self.model, "port": self.port, "train": train}
