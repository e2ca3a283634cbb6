from __future__ import annotations

import pytest

from burnish.config.config import load_config
from burnish.parts.desktop.service import options
from burnish.proxy.http.errors import ConfigError


def test_a_service_reads_back_what_it_was_installed_with(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OLLAMA_MODELS", "/mnt/models")
    flags = {"model": "ollama:tiny:1b", "context": 8192, "parallel": 2, "train": {"enabled": False}}
    found, file = options.read_back(options.command(flags, None))
    config = load_config(found, file=file)
    assert (config.model, config.context, config.parallel) == ("ollama:tiny:1b", 8192, 2)
    assert not config.train.enabled
    assert options.environment()["OLLAMA_MODELS"] == "/mnt/models"


def test_an_option_that_is_gone_is_refused_with_the_reason() -> None:
    earlier = [*options.command({"port": 8788}, None), "--workers", "2"]
    with pytest.raises(ConfigError, match=r"no setting 'workers' any more.*`burnish service install` again"):
        options.read_back(earlier)
