from __future__ import annotations

import pytest

from burnish.config.config import load_config
from burnish.parts.desktop.service import options


def test_a_service_reads_back_what_it_was_installed_with(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OLLAMA_MODELS", "/mnt/models")
    flags = {"model": "ollama:tiny:1b", "context": 8192, "parallel": 2, "train": {"enabled": False}}
    found, file = options.read_back(options.command(flags, None))
    config = load_config(found, file=file)
    assert (config.model, config.context, config.parallel) == ("ollama:tiny:1b", 8192, 2)
    assert not config.train.enabled
    assert options.environment()["OLLAMA_MODELS"] == "/mnt/models"
