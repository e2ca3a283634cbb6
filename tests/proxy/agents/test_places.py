"""Whose the upstream is: it decides whether agents must bring a key and may use their own names of models."""

from __future__ import annotations

import pytest

from burnish.proxy.agents import is_own


@pytest.mark.parametrize(
    ("upstream", "own"),
    [
        ("embedded:smollm2", True),
        ("http://127.0.0.1:8000", True),
        ("http://[::1]:8000/v1", True),
        ("http://192.168.1.5:8000,http://192.168.1.6:8000", True),
        ("http://gpu:8000", True),
        ("http://gpu.lan:8000", True),
        ("https://api.openai.com/v1", False),
        ("https://openrouter.ai/api/v1", False),
        ("http://8.8.8.8", False),
        ("http://localhost.example.com", False),
    ],
)
def test_an_upstream_is_ours_where_only_we_can_reach_it(upstream: str, own: bool):
    assert is_own(upstream) is own
