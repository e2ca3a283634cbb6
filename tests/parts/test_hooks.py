"""A part hears of what happens, misses nothing that it must not miss, and harms nobody if it fails."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from burnish.app.app import running
from burnish.config.config import load_config
from burnish.parts.hooks import Deliveries, Event, Hooks, Part
from burnish.proxy.http.errors import ConfigError, Unavailable
from burnish.proxy.log import Log
from tests.support.inprocess import behind
from tests.support.patience import within
from tests.support.upstream import completion, reply, upstream

EXAMPLE = Path(__file__).parents[2] / "examples" / "parts" / "webhook.py"
HELLO = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}


class Stubborn(Part):
    """Takes an event at the second attempt."""

    name = "stubborn"

    def __init__(self) -> None:
        self.attempts: list[str] = []
        self.took = asyncio.Event()

    async def erased(self, user: str) -> None:
        self.attempts.append(user)
        if len(self.attempts) == 1:
            raise OSError("the disk is full")
        self.took.set()


class Loud(Part):
    name = "loud"

    def imported(self) -> None:
        raise ValueError("a fault")


class Quiet(Part):
    name = "quiet"

    imports = 0

    def imported(self) -> None:
        self.imports += 1


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("burnish.parts.hooks.FIRST_PAUSE_S", 0.01)


async def test_an_event_is_delivered_until_the_part_took_it(log: Log, tmp_path: Path) -> None:
    part = Stubborn()
    hooks = Hooks([part], tmp_path / "parts")
    await hooks.start(log)
    with pytest.raises(Unavailable, match="stubborn is behind: the disk is full"):
        await hooks.erased("ann")
    status = {"name": "stubborn", "foreign": True, "behind": 1, "trouble": "the disk is full"}
    assert hooks.status() == [status]
    await asyncio.wait_for(part.took.wait(), within(10))
    await hooks.erased("bob")
    await hooks.stop()
    assert part.attempts == ["ann", "ann", "bob"]
    assert hooks.status()[0]["behind"] == 0
    assert not list((tmp_path / "parts").iterdir())


async def test_events_outlive_a_crash(log: Log, tmp_path: Path) -> None:
    Deliveries(Stubborn(), tmp_path).put(Event("erased", "ann"))  # and the process is killed
    part = Stubborn()
    hooks = Hooks([part], tmp_path)
    assert hooks.status()[0]["behind"] == 1
    await hooks.start(log)
    await asyncio.wait_for(part.took.wait(), within(10))
    await hooks.stop()
    assert part.attempts == ["ann", "ann"]


async def test_a_part_that_fails_at_observing_harms_no_other(log: Log, tmp_path: Path) -> None:
    quiet = Quiet()
    hooks = Hooks([Loud(), quiet], tmp_path)
    await hooks.start(log)
    hooks.imported()
    await hooks.stop()
    assert quiet.imports == 1


async def test_the_example_sends_each_rating(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "webhook.py").write_bytes(EXAMPLE.read_bytes())
    config = tmp_path / "config.toml"
    config.write_text('parts = ["webhook:Webhook"]\n')
    monkeypatch.setenv("BURNISH_CONFIG", str(config))
    async with upstream(reply(b"{}")) as hook:
        monkeypatch.setenv("WEBHOOK_URL", hook.url)
        async with behind(tmp_path, reply(completion("Hello."))) as (client, _):
            answer = await client.post("/v1/chat/completions", json=HELLO)
            rating = {"completion_id": answer.headers["x-burnish-completion-id"], "rating": "good"}
            assert (await client.post("/v1/feedback", json=rating)).status_code == 201
            async with asyncio.timeout(within(10)):
                while not hook.requests:
                    await asyncio.sleep(0.01)
            status = (await client.get("/burnish/status")).json()
    assert hook.requests[0].json()["reward"] == 1.0
    assert {"name": "webhook", "foreign": True, "behind": 0, "trouble": None} in status["parts"]


def test_only_the_configuration_file_names_parts(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="only in burnish's configuration file"):
        load_config({"data_dir": tmp_path}, environment={"BURNISH_PARTS": '["webhook:Webhook"]'})


async def refuses(tmp_path: Path, part: str, why: str) -> None:
    """Check that burnish doesn't start with a part of this name in its configuration file."""
    file = tmp_path / "config.toml"
    file.write_text(f'parts = ["{part}:Part"]\n')
    config = load_config({"data_dir": tmp_path / "data", "engine": "none"}, file=file)
    with pytest.raises(ConfigError, match=why):
        async with running(config):
            pass


async def test_the_current_folder_has_no_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository = tmp_path / "repository"
    repository.mkdir()
    (repository / "evil.py").write_text("raise SystemExit('it ran')\n")
    monkeypatch.chdir(repository)
    monkeypatch.syspath_prepend("")
    await refuses(tmp_path, "evil", r"evil:Part can't be loaded: No module named 'evil'")


@pytest.mark.parametrize(
    ("code", "why"),
    [("class Part: pass", "no subclass of burnish.parts.hooks.Part"), ("1 / 0", "division by zero")],
)
async def test_a_part_that_cannot_be_loaded_is_refused_in_words(tmp_path: Path, code: str, why: str) -> None:
    (tmp_path / f"broken{len(code)}.py").write_text(code)
    await refuses(tmp_path, f"broken{len(code)}", why)
