"""Agents before a burnish or a cloud that wants a key: each key arrives where it belongs, and only there."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.clients.agent import Agent, said
from tests.clients.script import decide, question
from tests.clients.telegram import telegram
from tests.clients.test_agents import AGENTS, HEADLESS, Headless
from tests.clients.test_by_hand import PLAIN
from tests.clients.test_channel import ANN, react, settings
from tests.support.burnish import Burnish, running
from tests.support.llama_server import free_port
from tests.support.scripted_model import ScriptedModel, keys_of, scripted_model

KEY = "sk-of-burnish"
HELD = "sk-that-burnish-holds"
OWN = "sk-of-the-agent"
CLOUD = "http://models.invalid/v1"
"""A name that nobody can resolve: a proxy of the environment leads there."""
OWN_KEY = {"claude-code": "ANTHROPIC_API_KEY"}
"""Where agents look for a key of their own, where it is not the variable of most."""
NOBODY = {"HTTPS_PROXY": "http://127.0.0.1:9", "NO_PROXY": "127.0.0.1"}
"""For an agent that would look at its vendor's whether a login is good."""

CLAUDE_LOGIN = {
    "accessToken": OWN,
    "refreshToken": OWN,
    "expiresAt": 4_000_000_000_000,
    "scopes": ["user:inference"],
    "subscriptionType": "max",
}
LOGINS = {
    "claude-code": (".claude/.credentials.json", json.dumps({"claudeAiOauth": CLAUDE_LOGIN})),
    "codex": (".codex/auth.json", json.dumps({"auth_mode": "apikey", "OPENAI_API_KEY": OWN})),
    "opencode": (".local/share/opencode/auth.json", json.dumps({"burnish": {"type": "api", "key": OWN}})),
    "continue": (".continue/.env", f"OPENAI_API_KEY={OWN}"),
    "llm": (".config/io.datasette.llm/keys.json", json.dumps({"openai": OWN})),
}
"""The files in which agents keep what they were told, where they have commands for that."""


@dataclass(frozen=True)
class World:
    """A burnish, what answers behind it, and the key that burnish wants."""

    burnish: Burnish
    model: ScriptedModel
    key: str = ""

    @contextmanager
    def agent(self, headless: Headless, home: Path) -> Iterator[Agent]:
        """An agent with a key of its own in its shell, connected, with nothing asked yet."""
        env = {OWN_KEY.get(headless.name, "OPENAI_API_KEY"): OWN}
        with self.home(home, headless.settings, env, headless.name) as agent:
            yield agent

    @contextmanager
    def home(
        self, folder: Path, files: Mapping[str, str], env: Mapping[str, str], *connected: str
    ) -> Iterator[Agent]:
        """A home with these files, for agents that are connected, with nothing asked yet."""
        agent = Agent(self.burnish, self.model, folder, self.key)
        agent.env |= env
        for name, text in files.items():
            agent.write(name, text)
        try:
            for name in connected:
                agent.burnish_says("connect", name)
            agent.begin()
            self.model.requests.clear()
            yield agent
        finally:
            agent.end()

    def keys(self) -> set[str]:
        """The keys that the upstream was shown, less those that stand for none; burnish's own never stands anywhere."""
        assert not any(KEY in value for each in self.model.requests for _, value in each.headers)
        shown = {key for each in self.model.requests for key in keys_of(each)}
        return shown - {"burnish", "DUMMY_KEY"}

    def holds(self, key: str) -> list[str]:
        """The files of burnish in which a key stands."""
        files = (path for path in self.burnish.data_dir.rglob("*") if path.is_file())
        return [path.name for path in files if key.encode() in path.read_bytes()]


@contextmanager
def world(data: Path, *, wanted: str | None = None, key: str = "", held: str = "") -> Iterator[World]:
    """Run it. ``wanted``: the key without which the cloud refuses; None: an upstream on this machine, without any."""
    with scripted_model(decide, key=wanted) as model:
        env = {"BURNISH_API_KEY": key, "BURNISH_UPSTREAM_API_KEY": held}
        if wanted is not None:
            env |= {"HTTP_PROXY": model.url, "http_proxy": model.url, "NO_PROXY": "", "no_proxy": ""}
        upstream = model.url if wanted is None else CLOUD
        with running(data, "--no-train", "--upstream", upstream, env=env) as burnish:
            yield World(burnish, model, key)


def standing(**keys: str) -> Any:
    """A fixture with one world for all tests of this file."""

    @pytest.fixture(scope="module")
    def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
        with world(tmp_path_factory.mktemp("burnish") / "data", **keys) as stands:
            yield stands

    return running


locked, cloud, held = standing(key=KEY), standing(wanted=OWN, key=KEY), standing(wanted=HELD, held=HELD)


@pytest.fixture(params=AGENTS, ids=lambda each: each.name)
def headless(request: pytest.FixtureRequest) -> Headless:
    return request.param


def test_burnish_wants_a_key(headless: Headless, locked: World, tmp_path: Path) -> None:
    """What connect wrote opens burnish, for /rl as well; nobody else can read it, and it is gone afterwards."""
    with locked.agent(headless, tmp_path / "home") as agent:
        assert holders(agent) != {}
        turn = answered(headless, agent)
        if (
            headless.again and headless.name != "openclaw"
        ):  # its /rl is a message as well, and it starts slowly
            assert "rated bad" in agent.run(*headless.again, "/rl bad")
            assert agent.given() == {turn: -1.0}
        assert set(holders(agent).values()) == {0o600}
        assert locked.keys() == set()
        assert locked.holds(KEY) == [f"{headless.name}.json"], "what connect keeps, to take it back"
        agent.burnish_says("disconnect", headless.name)
        assert restored(headless, agent)
        assert (locked.holds(KEY), locked.holds(OWN)) == ([], [])


def test_a_wrong_key_is_said_to_be_one(headless: Headless, locked: World, tmp_path: Path) -> None:
    if headless.name == "openclaw":
        pytest.skip("it says that authentication failed, in words of its own")
    with locked.agent(headless, tmp_path / "home") as agent:
        for name in holders(agent):
            agent.write(name, (agent.home / name).read_text().replace(KEY, "sk-wrong"))
        code, printed = agent.ended(*headless.ask, question()[0])
    assert code != 0
    assert "this burnish needs its api_key" in printed
    assert locked.model.requests == []


def test_a_cloud_wants_the_agents_key(headless: Headless, cloud: World, tmp_path: Path) -> None:
    """It gets that one and no other, though burnish wants one of its own as well; `default` is found with it."""
    with cloud.agent(headless, tmp_path / "home") as agent:
        answered(headless, agent)
        assert cloud.keys() == {OWN}
        assert cloud.holds(OWN) == []
        agent.burnish_says("disconnect", headless.name)
        assert restored(headless, agent)
        assert cloud.holds(KEY) == []


@pytest.mark.parametrize("name", LOGINS)
def test_a_login_is_as_good_as_a_key(name: str, cloud: World, tmp_path: Path) -> None:
    """What an agent was told by its own command, it brings, with no variable set."""
    with cloud.home(tmp_path / "home", dict([LOGINS[name]]), NOBODY, name) as agent:
        answered(HEADLESS[name], agent)
    assert {each.header("authorization") for each in cloud.model.requests} == {f"Bearer {OWN}"}


def test_burnish_holds_the_key_of_a_cloud(headless: Headless, held: World, tmp_path: Path) -> None:
    """An agent needs none then, and that of its own stays with it."""
    with held.agent(headless, tmp_path / "home") as agent:
        answered(headless, agent)
        assert held.keys() == {HELD}
        agent.burnish_says("disconnect", headless.name)
        assert restored(headless, agent)
        assert (held.holds(HELD), held.holds(OWN)) == ([], [])


def test_continue_adds_models_of_anthropics_beside_ours(cloud: World, tmp_path: Path) -> None:
    """It writes its settings anew where it finds that key at its first start; what is ours is found in them."""
    cn = HEADLESS["continue"]
    with cloud.agent(cn, tmp_path / "home") as agent:
        agent.env["ANTHROPIC_API_KEY"] = OWN
        answered(cn, agent)
        agent.burnish_says("disconnect", "continue")
        left = agent.files()[".continue/config.yaml"].decode()
    assert "provider: anthropic" in left
    assert KEY not in left
    assert "burnish" not in left


def test_a_reaction_rates_where_burnish_wants_a_key(locked: World, tmp_path: Path) -> None:
    """OpenClaw's plugin knows the key as well."""
    gateway = ("openclaw", "gateway", "run", "--bind", "loopback", "--port", str(free_port()))
    with telegram() as channel:
        files = {".openclaw/openclaw.json": json.dumps(settings(channel), indent=2)}
        with locked.home(tmp_path / "home", files, {}, "openclaw") as agent, agent.running(*gateway):
            asked, answer = question()
            channel.write(ANN, asked)
            react(agent, channel, channel.until_said(answer), "👎", {answer: -1.0})


def test_aider_before_a_cloud(cloud: World, tmp_path: Path) -> None:
    """What connect prints works as it stands: the command, and the file that it names."""
    with cloud.home(tmp_path / "home", {}, {"OPENAI_API_KEY": OWN}) as agent:
        command, into, *lines = agent.burnish_says("connect", "aider").splitlines()
        agent.write(into.split("~/")[1].rstrip(":"), "\n".join(lines))
        asked, answer = question()
        assert answer in agent.run("env", *shlex.split(command), *PLAIN, "--message", asked)
        assert cloud.keys() == {OWN}
        agent.burnish_says("good")
        assert said(agent.rated()) == answer


def answered(headless: Headless, agent: Agent) -> str:
    """Ask it something, and rate the answer; return that one's id."""
    asked, answer = question()
    assert answer in agent.run(*headless.ask, asked)
    (turn,) = [each["id"] for each in agent.logged() if said(each) == answer]
    agent.burnish_says("good")
    assert agent.given() == {turn: 1.0}
    return turn


def holders(agent: Agent) -> dict[str, int]:
    """The files of the home folder in which the key of burnish stands, and who may read them."""
    found = [name for name, content in agent.files().items() if KEY.encode() in content]
    return {name: (agent.home / name).stat().st_mode & 0o777 for name in found}


def restored(headless: Headless, agent: Agent) -> bool:
    """Whether its settings are what they were, and no key of burnish's is left anywhere."""
    files = agent.files()
    before = {name: text.encode() for name, text in headless.settings.items()}
    readable = all((agent.home / name).stat().st_mode & 0o044 for name in before)
    return before.items() <= files.items() and readable and holders(agent) == {}
