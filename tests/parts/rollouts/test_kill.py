"""A hundred rollouts at once, and kill -9 in their midst: none is mixed up, and nothing acknowledged is lost."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from tests.support.burnish import Burnish, running
from tests.support.patience import within
from tests.support.upstream import completion, reply, upstream

COUNT, TURNS = 100, 3
KILLED_AFTER = 120
"""Answers of some 300."""


@dataclass
class Agent:
    """Says the same as all others, and notes what it was answered."""

    id: str
    answered: list[str] = field(default_factory=list)
    """Completions."""

    async def play(self, http: httpx.AsyncClient, killing: asyncio.Event | None) -> None:
        while len(self.answered) < TURNS and not (killing and killing.is_set()):
            told = [{"role": "assistant", "content": "hit"}, {"role": "user", "content": "a nine"}]
            messages = [{"role": "user", "content": "hit or stick?"}, *told * len(self.answered)]
            body = {"model": "default", "messages": messages}
            answer = await http.post(f"/r/{self.id}/v1/chat/completions", json=body)
            assert answer.status_code == 200, answer.text
            self.answered.append(answer.headers["x-burnish-completion-id"])


def client_of(url: str) -> httpx.AsyncClient:
    at_once = httpx.Limits(max_connections=COUNT)
    return httpx.AsyncClient(base_url=url, limits=at_once, trust_env=False, timeout=within(60))


async def begin(http: httpx.AsyncClient) -> Agent:
    answer = await http.post("/v1/rollouts", json={"task": "cards", "group": "g"})
    assert answer.status_code == 201, answer.text
    return Agent(answer.json()["id"])


async def until_killed(url: str, burnish: Burnish) -> tuple[list[Agent], dict[str, list[str]]]:
    """Play until enough was answered, and kill burnish; returns the agents, and what it had told of each before."""
    killing = asyncio.Event()
    async with client_of(url) as http:
        agents = await asyncio.gather(*(begin(http) for _ in range(COUNT)))

        async def play(agent: Agent) -> None:
            # From the kill on; anyio raises AttributeError for a connection that ends as it begins.
            with suppress(httpx.TransportError, AttributeError):
                await agent.play(http, killing)

        playing = asyncio.gather(*map(play, agents))
        while sum(len(each.answered) for each in agents) < KILLED_AFTER:
            await asyncio.sleep(0.005)
        listed = (await http.get(f"/v1/rollouts?limit={COUNT}")).json()["data"]
        await asyncio.to_thread(burnish.kill)
        killing.set()
        await playing
    return agents, {each["id"]: each["completions"] for each in listed}


async def rewarded(http: httpx.AsyncClient, agent: Agent) -> dict[str, Any]:
    for what, body in (("reward", {"value": 1.0}), ("end", {})):
        answer = await http.post(f"/v1/rollouts/{agent.id}/{what}", json=body)
    return dict(answer.json())


async def test_nothing_is_mixed_up_or_lost(tmp_path: Path) -> None:
    async with upstream(reply(completion("hit"))) as engine:
        flags = ("--model", "mock", "--no-train", "--upstream", engine.url)
        env = {"BURNISH_ENGINE": "none"}
        with running(tmp_path / "data", *flags, env=env) as up:
            agents, told = await until_killed(up.url, up)
        assert sum(map(len, told.values())) >= KILLED_AFTER
        before = {agent.id: list(agent.answered) for agent in agents}
        with running(tmp_path / "data", *flags, env=env) as up:
            async with client_of(up.url) as http:
                await asyncio.gather(*(agent.play(http, None) for agent in agents))
                ended = await asyncio.gather(*(rewarded(http, agent) for agent in agents))
    everything = [name for each in ended for name in each["completions"]]
    assert len(everything) == len(set(everything))
    for agent, found in zip(agents, ended, strict=True):
        after = agent.answered[len(before[agent.id]) :]
        assert {*told[agent.id], *after} <= set(found["completions"])
        unheard = set(found["completions"]) - set(agent.answered)
        assert len(unheard) <= 1, "only the one whose answer the kill kept from the agent"
        assert (found["reward"], found["status"]) == (1.0, "ended")
