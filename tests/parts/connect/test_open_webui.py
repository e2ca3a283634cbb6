"""Open WebUI's functions, run as it runs them, and ``burnish connect open-webui`` against a double of its routes."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from burnish.parts.connect.base import Place
from burnish.parts.connect.open_webui import exported
from tests.page.site import site_running
from tests.support.inprocess import listening, ratings
from tests.support.program import NOBODY, call

PLACE = Place("http://127.0.0.1:8787")


class OpenWebUI:
    """What the functions find in Open WebUI's process: its folder, its users and its feedback."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.feedback: dict[str, Any] = {}
        user = SimpleNamespace(email="ann@example.org")
        modules: dict[str, dict[str, Any]] = {
            "open_webui": {},
            "open_webui.models": {},
            "open_webui.config": {"CACHE_DIR": folder},
            "open_webui.models.feedbacks": {"Feedbacks": self._by("get_feedback_by_id", self.feedback.get)},
            "open_webui.models.users": {"Users": self._by("get_user_by_id", lambda _: user)},
        }
        for name, members in modules.items():
            module = ModuleType(name)
            vars(module).update(members)
            monkeypatch.setitem(sys.modules, name, module)
        answers, ratings = (each["content"] for each in exported(PLACE))
        self.filter = _executed(answers)["Filter"]()
        self.events = _executed(ratings)["Event"]()

    @staticmethod
    def _by(name: str, method: Any) -> SimpleNamespace:
        async def get(key: str) -> Any:
            return method(key)

        return SimpleNamespace(**{name: get})

    async def rate(self, message: str, **data: Any) -> None:
        found = SimpleNamespace(id="f1", user_id="u1", data=data, meta={"message_id": message})
        self.feedback["f1"] = found
        await self.tell("feedback.updated")

    async def tell(self, name: str) -> None:
        await self.events.event({"event": name, "subject": {"type": "feedback", "id": "f1"}, "data": {}})


def _executed(content: str) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "function_burnish"}
    exec(content, names)
    return names


async def given(client: httpx.AsyncClient) -> list[tuple[Any, ...]]:
    left = [each for each in await ratings(client) if not each["undone_at"]]
    return [(each["rater"], each["reward"], each["comment"], each["tags"]) for each in left]


async def test_a_thumb_and_its_changes_reach_burnish(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    webui = OpenWebUI(tmp_path, monkeypatch)
    async with site_running(tmp_path / "burnish") as site:
        await site.ask("What is rust?", user="ann@example.org")
        piece = {"id": "chatcmpl-1", "choices": []}
        assert webui.filter.stream(piece, {"message_id": "m1"}) is piece
        webui.filter.stream({"id": "chatcmpl-title"}, {"message_id": "m1", "task": "title_generation"})

        # burnish is away: the thumb waits, and goes with the next event of any kind.
        webui.events.valves.url = NOBODY
        await webui.rate("m1", rating=-1)
        webui.events.valves.url = site.url
        await webui.tell("chat.finished")
        assert await given(site.client) == [("ann@example.org", -1.0, None, [])]

        why = {"reason": "too_verbose", "comment": "Be brief", "details": {"rating": 3}, "tags": ["Science"]}
        await webui.rate("m1", rating=-1, **why)
        words = "too verbose: Be brief", ["3 of 10", "Science"]
        assert await given(site.client) == [("ann@example.org", -1.0, *words)]
        await webui.rate("m1", rating=1, reason=None, comment=None)
        assert await given(site.client) == [("ann@example.org", 1.0, None, [])]
        webui.feedback.clear()
        await webui.tell("feedback.deleted")
        assert await given(site.client) == []

        # Answers of other models, and those from before burnish was connected, are none of burnish's.
        webui.filter.stream({"id": "chatcmpl-of-another"}, {"message_id": "m2"})
        for message in ("m2", "m3"):
            await webui.rate(message, rating=1)
        assert await given(site.client) == []


@dataclass
class Double:
    """Open WebUI's routes for functions and connections, as its source has them."""

    config: dict[str, Any]
    functions: dict[str, dict[str, Any]] = field(default_factory=dict)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        content, status = {"detail": "We could not find what you're looking for"}, 401
        if request.headers["authorization"] == "Bearer sk-admin":
            body = json.loads(await request.body() or "null")
            content, status = self._answer(request.url.path, body), 200
        await JSONResponse(content, status)(scope, receive, send)

    def _answer(self, path: str, body: Any) -> Any:
        if path == "/openai/config":
            return self.config
        if path == "/openai/config/update":
            self.config.update(body)
            return self.config
        if path == "/api/v1/functions/":
            return list(self.functions.values())
        if path == "/api/v1/functions/create":
            self.functions[body["id"]] = body | {"is_active": False, "is_global": False}
            return self.functions[body["id"]]
        names = re.fullmatch(r"/api/v1/functions/id/(\w+)/([\w/]+)", path)
        assert names, path
        return self._change(names[1], names[2], body)

    def _change(self, id: str, what: str, body: Any) -> Any:
        function = self.functions[id]
        if what == "delete":
            return bool(self.functions.pop(id))
        switch = {"toggle": "is_active", "toggle/global": "is_global"}.get(what)
        changed = {switch: not function[switch]} if switch else {"valves": body} if "valves" in what else body
        function.update(changed)
        return function


async def test_connected_by_its_api_and_back(tmp_path: Path) -> None:
    before = {
        "ENABLE_OPENAI_API": True,
        "OPENAI_API_BASE_URLS": ["https://elsewhere.example/v1"],
        "OPENAI_API_KEYS": ["theirs"],
        "OPENAI_API_CONFIGS": {"0": {"enable": True}},
    }
    double = Double(dict(before))
    functions, config = double.functions, double.config
    async with listening(double) as url:
        env = {"HOME": str(tmp_path), "OPEN_WEBUI_URL": url, "OPEN_WEBUI_API_KEY": "sk-admin"}
        for _ in range(2):  # the second one changes nothing
            done = await asyncio.to_thread(call, "connect", "open-webui", url=NOBODY, env=env)
            assert done.returncode == 0, done.stderr
        active = {id: (each["is_active"], each["is_global"]) for id, each in functions.items()}
        assert active == {"burnish_answers": (True, True), "burnish_ratings": (True, False)}
        assert functions["burnish_ratings"]["valves"] == {"url": NOBODY, "key": ""}
        assert config["OPENAI_API_BASE_URLS"] == ["https://elsewhere.example/v1", f"{NOBODY}/v1"]
        assert config["OPENAI_API_CONFIGS"]["1"]["headers"]["x-burnish-session"] == "{{CHAT_ID}}"
        refused = await asyncio.to_thread(
            call, "disconnect", "open-webui", env=env | {"OPEN_WEBUI_API_KEY": "wrong"}
        )
        assert "Is OPEN_WEBUI_API_KEY an administrator's key?" in refused.stderr
        assert (await asyncio.to_thread(call, "disconnect", "open-webui", env=env)).returncode == 0
        assert (functions, config) == ({}, before)


def test_without_a_key_there_is_a_file_to_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPEN_WEBUI_API_KEY", raising=False)
    env = {"HOME": str(tmp_path)}
    done = call("connect", "open-webui", url=NOBODY, env=env)
    file = tmp_path / "burnish-open-webui.json"
    assert f"Functions → Import: {file}" in done.stdout
    assert [each["type"] for each in json.loads(file.read_text())] == ["filter", "event"]
    assert call("disconnect", "open-webui", env=env).returncode == 0
    assert not file.exists()
