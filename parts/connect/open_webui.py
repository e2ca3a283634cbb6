"""Open WebUI: a connection and two functions in its database, by its API or by hand.

With the key of an administrator, burnish uses the API. Without one, it writes a file to import, and says what to set.

The filter ``answers`` notes the ID of each answer, and the event function ``ratings`` sends thumbs to burnish.
Open WebUI takes one kind of function a file, so there are two.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from burnish.parts.connect.base import OPENAI_KEY, FileChange, Home, Place
from burnish.parts.connect.changes import OwnFile
from burnish.proxy.http.errors import ConfigError

SOURCES = Path(__file__).parent / "open_webui_functions"
FUNCTIONS = {"burnish_answers": "answers.py", "burnish_ratings": "ratings.py"}
"""By their IDs in Open WebUI."""
FILTER, EVENTS = FUNCTIONS
HEADERS = {"x-burnish-user": "{{USER_EMAIL}}", "x-burnish-session": "{{CHAT_ID}}"}
"""Open WebUI fills them in, and thus keeps its users' ratings and chats apart."""
URL, KEY = "OPEN_WEBUI_URL", "OPEN_WEBUI_API_KEY"
DEFAULT_URL = "http://127.0.0.1:8080"
KEY_HELP = f"Set {KEY} to an administrator's key, and {URL} unless it is at {DEFAULT_URL}"
LIMIT_S = 60.0
"""It loads a function before it answers, and lists the models of all connections."""


def changes(place: Place, home: Home) -> Sequence[FileChange]:
    """Without a key, write the file that Open WebUI imports."""
    if KEY in home.env:
        return ()
    return (OwnFile(_import_file(home), json.dumps(exported(place, key=place.key), indent=1) + "\n"),)


def remote(home: Home) -> OpenWebUIServer | None:
    key = home.env.get(KEY)
    return OpenWebUIServer(home.env.get(URL, DEFAULT_URL), key) if key else None


def steps(place: Place) -> str:
    home = Home()
    if KEY in home.env:
        return ""
    key = f"your {OPENAI_KEY}" if place.own_credentials else place.token
    return (
        "In Open WebUI, Admin Panel:\n"
        "1. Settings → Connections → OpenAI API → +, with\n"
        f"     URL      {place.api}\n     key      {key}\n     headers  {json.dumps(HEADERS | place.headers)}\n"
        f"2. Functions → Import: {_import_file(home)}. Switch both functions on,\n"
        '   and in the menu of "burnish: answers" Global. Then 👍 and 👎 reach burnish.\n'
        f"With an administrator's key burnish does all of it: {KEY}=sk-… burnish connect open-webui\n"
        f"(Open WebUI is looked for at {DEFAULT_URL}; {URL} names another place.)"
    )


class OpenWebUIServer:
    """A running Open WebUI, asked with a key of an administrator."""

    def __init__(self, url: str, key: str) -> None:
        self.url = url.rstrip("/")
        self._key = key

    def connect(self, place: Place) -> list[str]:
        """Install or update everything; return what was done. Raises ConfigError."""
        with self._client() as client:
            there = {function["id"]: function for function in _json(client.get("/api/v1/functions/"))}
            for function in exported(place):
                path = f"id/{function['id']}/update" if function["id"] in there else "create"
                _json(client.post(f"/api/v1/functions/{path}", json=function))
            valves = f"/api/v1/functions/id/{EVENTS}/valves/update"
            _json(client.post(valves, json={"url": place.url, "key": place.key or ""}))
            for id in FUNCTIONS:
                if not there.get(id, {}).get("is_active"):
                    _json(client.post(f"/api/v1/functions/id/{id}/toggle"))
            if not there.get(FILTER, {}).get("is_global"):
                _json(client.post(f"/api/v1/functions/id/{FILTER}/toggle/global"))
            self._set_connection(client, place.api, place)
        return ["installed  the functions burnish: answers and burnish: ratings", f"connected  {place.api}"]

    def disconnect(self, api: str) -> list[str]:
        """Remove everything that ``connect`` made. ``api``: where it said burnish is. Raises ConfigError."""
        with self._client() as client:
            there = {function["id"] for function in _json(client.get("/api/v1/functions/"))}
            for id in [id for id in FUNCTIONS if id in there]:
                _json(client.delete(f"/api/v1/functions/id/{id}/delete"))
            self._set_connection(client, api, None)
        return ["removed    the functions burnish: answers and burnish: ratings", f"removed    {api}"]

    def _set_connection(self, client: httpx.Client, api: str, place: Place | None) -> None:
        """Add, update or (without a place) remove the connection to burnish; the others stay."""
        config = _json(client.get("/openai/config"))
        urls, keys = config["OPENAI_API_BASE_URLS"], config["OPENAI_API_KEYS"]
        settings = config["OPENAI_API_CONFIGS"]
        connections = [
            (url, keys[i] if i < len(keys) else "", settings.get(str(i), settings.get(url)))
            for i, url in enumerate(urls)
            if url != api
        ]
        if place:
            own_settings = {"enable": True, "headers": HEADERS | place.headers}
            connections.append((api, place.token, own_settings))
        body = {
            "ENABLE_OPENAI_API": bool(place) or config["ENABLE_OPENAI_API"],
            "OPENAI_API_BASE_URLS": [url for url, _, _ in connections],
            "OPENAI_API_KEYS": [key for _, key, _ in connections],
            "OPENAI_API_CONFIGS": {
                str(i): options for i, (_, _, options) in enumerate(connections) if options is not None
            },
        }
        _json(client.post("/openai/config/update", json=body))

    @contextmanager
    def _client(self) -> Iterator[httpx.Client]:
        headers = {"authorization": f"Bearer {self._key}"}
        try:
            with httpx.Client(base_url=self.url, headers=headers, timeout=LIMIT_S) as client:
                yield client
        except httpx.HTTPError as error:
            raise ConfigError(
                f"Open WebUI doesn't answer at {self.url}: {error}. Start it, or set {URL}"
            ) from error


def exported(place: Place, *, key: str | None = None) -> list[dict[str, Any]]:
    """Return both functions in the form in which Open WebUI exports and imports them.

    ``key``: burnish's, as the default of the setting, for a file that the user imports.
    """
    functions = []
    for id, file in FUNCTIONS.items():
        source = (SOURCES / file).read_text("utf-8")
        if id == EVENTS and place.url:
            source = source.replace("http://127.0.0.1:8787", place.url)
            source = source.replace('key: str = Field(""', f"key: str = Field({json.dumps(key or '')}")
        front = dict(line.split(": ", 1) for line in source.split('"""')[1].strip().splitlines())
        meta = {"description": front["description"], "manifest": front}
        kind = "filter" if id == FILTER else "event"
        functions.append({"id": id, "name": front["title"], "type": kind, "content": source, "meta": meta})
    return functions


def _import_file(home: Home) -> Path:
    return home.path / "burnish-open-webui.json"


def _json(response: httpx.Response) -> Any:
    if response.is_success:
        return response.json()
    why = f" Is {KEY} an administrator's key?" if response.status_code in (401, 403) else ""
    raise ConfigError(
        f"Open WebUI refused {response.request.url.path} ({response.status_code}): {response.text[:300]}{why}"
    )
