"""The public face: what it is, and what importing it costs."""

from __future__ import annotations

import subprocess
import sys

import pytest

import burnish.agents
from burnish.agents import AgentError, Burnish, MissingPackage
from burnish.agents.playing import maker

PUBLIC = """
AgentError BadDemonstration BadReward Burnish Demonstration Episode EpisodeOver GymAgent MissingPackage NoAction
NotRunning Outcome Rollouts Refused Rules StepLimit TooManyFaults Tracker find_action
"""


def test_the_public_face_is_deliberate() -> None:
    assert sorted(burnish.agents.__all__) == sorted(PUBLIC.split())
    assert all(hasattr(burnish.agents, name) for name in burnish.agents.__all__)


def test_every_error_is_the_standard_librarys_too() -> None:
    kinds = [each for each in vars(burnish.agents).values() if isinstance(each, type)]
    errors = [each for each in kinds if issubclass(each, AgentError) and each is not AgentError]
    assert len(errors) == 9
    assert all(len(each.__bases__) == 2 and each.__bases__[1].__module__ == "builtins" for each in errors)


def test_importing_it_imports_neither_its_extra_nor_the_rest_of_burnish() -> None:
    code = (
        "import sys, burnish.agents; "
        "print([each for each in ('openai', 'gymnasium', 'torch', 'starlette', 'burnish.proxy', 'burnish.adapters') "
        "if each in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_missing_package_says_which_extra_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("openai", "gymnasium"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(
        MissingPackage, match=r"an agent needs the package openai: pip install 'burnish\[agents\]'"
    ):
        Burnish()
    with pytest.raises(MissingPackage, match=r"Blackjack-v1 needs the package gymnasium: pip install"):
        maker("Blackjack-v1")
