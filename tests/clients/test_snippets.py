"""The snippets of docs/agents.md, as they stand there."""

from __future__ import annotations

import re

import pytest

from tests.clients.agent import CLIENTS, ROOT, Agent

PAGE = (ROOT / "docs" / "agents.md").read_text(encoding="utf-8")
SNIPPETS = re.findall(r"^```(python|javascript)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
PROGRAMS = {"python": str(CLIENTS / "sdks" / "bin" / "python"), "javascript": "node"}
SUFFIXES = {"python": ".py", "javascript": ".mjs"}


@pytest.mark.parametrize(
    "which", range(len(SNIPPETS)), ids=[f"{kind}{n}" for n, (kind, _) in enumerate(SNIPPETS)]
)
def test_a_snippet_rates_its_own_answer(which: int, agent: Agent) -> None:
    kind, code = SNIPPETS[which]
    program = agent.work / f"snippet{SUFFIXES[kind]}"
    program.write_text(code.replace("http://127.0.0.1:8787", agent.burnish.url))
    (agent.work / "node_modules").symlink_to(CLIENTS / "node_modules")
    agent.run(PROGRAMS[kind], str(program))
    (answer,) = agent.logged()
    assert answer["prompt"] == "What is rust?"
    assert answer["rating"] == (-1.0 if "bad" in code else 1.0)


def test_there_are_snippets_for_both_languages() -> None:
    assert [kind for kind, _ in SNIPPETS] == ["python", "javascript"] * 3
