"""The description of the routes is checked against the routes themselves: methods, parameters, bodies, real answers."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
from jsonschema import Draft202012Validator

from burnish.adapters.hosts.detect import weights_digest
from tests.learner.test_foreign_engine import world
from tests.support.inprocess import behind
from tests.support.upstream import completion, reply
from tests.support.vllm_double import Engine, live_version

pytestmark = pytest.mark.asyncio(loop_scope="module")

METHODS = ("get", "post", "put", "patch", "delete")
IN_PATH = {"n": "1", "path": "main.js", "user": "nobody"}
"""Values for parameters; others get "x"."""
UNCALLED = {
    ("GET", "/burnish/events"): "doesn't end",
    ("POST", "/burnish/train"): "tests of the learner start runs",
    ("POST", "/burnish/adapters/{n}/judge"): "tests of the learner judge candidates",
    ("GET", "/burnish/runs/{id}"): "tests of the learner start runs",
    ("GET", "/burnish/engine"): "goes elsewhere",
    ("GET", "/burnish/doctor"): "runs a program against a burnish of its own",
    ("POST", "/burnish/login"): "called below",
    ("POST", "/burnish/reward/train"): "GET /burnish/reward answers the same",
    ("POST", "/burnish/reward/on"): "GET /burnish/reward answers the same",
    ("POST", "/burnish/reward/off"): "GET /burnish/reward answers the same",
    ("POST", "/burnish/adapters/promote"): "no version waits; /burnish/adapters/{n}/promote answers the same",
    ("POST", "/burnish/adapters"): "needs real weights; the list has the same rows",
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def http(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[httpx.AsyncClient]:
    """A burnish that learns, with one version."""
    folder = tmp_path_factory.mktemp("described")
    weights = folder / "weights"
    weights.mkdir()
    (weights / "model.safetensors").write_bytes(b"the base")
    live_version(folder, weights_digest(weights))
    async with world(folder, Engine(), weights) as http:
        yield http


async def description(http: httpx.AsyncClient) -> dict[str, Any]:
    return dict((await http.get("/burnish/openapi.json")).json())


def operations(found: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    return [(method, path, each) for path, known in found["paths"].items() for method, each in known.items()]


def at(path: str) -> str:
    return re.sub(r"\{(\w+)\}", lambda name: IN_PATH.get(name[1], "x"), path)


async def test_it_is_openapi(http: httpx.AsyncClient) -> None:
    found = await description(http)
    assert found["openapi"] == "3.1.0"
    assert len(found["paths"]) > 30
    names = [each["operationId"] for _, _, each in operations(found)]
    assert len(set(names)) == len(names)
    for schema in found["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)
    for reference in re.findall(r'"\$ref": "#/components/schemas/([^"]+)"', json.dumps(found)):
        assert reference in found["components"]["schemas"]


async def test_it_is_the_same_whether_burnish_learns_or_not(tmp_path: Path, http: httpx.AsyncClient) -> None:
    async with behind(tmp_path / "other", reply(completion())) as (other, _):
        assert await description(other) == await description(http)
        for path in ("/burnish/runs", "/burnish/adapters/1", "/burnish/train"):
            answer = await other.request("POST" if path.endswith("train") else "GET", path)
            assert answer.json()["error"]["code"] == "not_learning"


async def test_it_has_exactly_the_methods_that_are_answered(http: httpx.AsyncClient) -> None:
    for path, known in (await description(http))["paths"].items():
        if path in ("/", "/burnish/events"):
            continue  # another method is the upstream's; it doesn't end
        for method in METHODS:
            body = None if method == "get" else {"nonsense": 1}
            status = (await http.request(method, at(path), json=body)).status_code
            assert (status != 405) is (method in known), (method, path, status)


async def test_it_has_exactly_the_parameters_that_are_known(http: httpx.AsyncClient) -> None:
    lists = 0
    for method, path, operation in operations(await description(http)):
        named = {each["name"] for each in operation["parameters"] if each["in"] == "path"}
        assert named == set(re.findall(r"\{(\w+)\}", path))
        in_query = [each["name"] for each in operation["parameters"] if each["in"] == "query"]
        if in_query:
            refused = await http.request(method, at(path), params={"nonsense": 1})
            known = refused.json()["error"]["message"].partition("this route knows ")[2]
            assert known.split(", ") == in_query, path
            lists += 1
    assert lists > 5


async def test_it_has_exactly_the_fields_of_each_body(http: httpx.AsyncClient) -> None:
    found = await description(http)
    bodies = 0
    for method, path, operation in operations(found):
        if body := operation.get("requestBody"):
            name = body["content"]["application/json"]["schema"]["$ref"].split("/")[-1]
            schema = found["components"]["schemas"][name]
            fields = schema["properties"]
            example = {
                name: 0 if fields[name].get("type") == "number" else fields[name].get("enum", ["x"])[0]
                for name in schema.get("required", ())
            }
            refused = await http.request(method, at(path), json=example | {"nonsense": 1})
            assert refused.status_code == 422, (path, refused.text)
            known = re.split(r"known fields: |the fields are ", refused.json()["error"]["message"])[1]
            assert known.rstrip(")").split(", ") == list(fields), path
            assert schema["additionalProperties"] is False
            bodies += 1
    assert bodies > 8


def strict(schema: Any) -> Any:
    """Return a schema by which an undescribed field is a fault."""
    if isinstance(schema, list):
        return [strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {"additionalProperties": False} if isinstance(schema.get("properties"), dict) else {}
    return closed | {name: strict(each) for name, each in schema.items()}


class Checked:
    """A client that validates each answer against the description."""

    def __init__(self, http: httpx.AsyncClient, found: dict[str, Any]) -> None:
        self._http = http
        self._found = found
        self.called: set[tuple[str, str]] = set()

    async def __call__(self, method: str, path: str, /, *, body: Any = None, **members: str) -> Any:
        """Call a route by its path in the description; ``members`` fill in its parameters."""
        operation = self._found["paths"][path][method.lower()]
        self.called.add((method, path))
        headers = {"accept": "text/html"}
        answer = await self._http.request(method, path.format(**members), json=body, headers=headers)
        described = operation["responses"].get(str(answer.status_code))
        assert described, (method, path, answer.status_code, answer.text)
        kind, content = next(iter(described["content"].items()))
        if kind != "application/json":
            assert answer.headers["content-type"].startswith(kind)
            return answer.text
        components = {"schemas": strict(self._found["components"]["schemas"])}
        schema = strict(content["schema"]) | {"components": components}
        errors = Draft202012Validator(schema).iter_errors(answer.json())
        faults = [f"{each.json_path}: {each.message[:300]}" for each in errors]
        assert not faults, (method, path, faults)
        return answer.json()


async def test_real_answers_are_as_described(http: httpx.AsyncClient, tmp_path: Path) -> None:
    found = await description(http)
    call = Checked(http, found)

    async def ask(prompt: str, **more: Any) -> str:
        asked = {"model": "default", "messages": [{"role": "user", "content": prompt}], **more}
        return (await http.post("/v1/chat/completions", json=asked)).headers["x-burnish-completion-id"]

    first, second, third = await ask("Tea?"), await ask("Tea?"), await ask("Coffee?")
    await http.post("/v1/embeddings", json={"model": "default", "input": "x"})  # a passthrough
    rate = ("POST", "/v1/feedback")
    good = await call(*rate, body={"completion_id": first, "rating": "good"})
    await call(*rate, body={"completion_id": second, "preferred_over": first})
    graded = {"rating": 2, "scale": "likert", "comment": "Shorter, please."}
    await call(*rate, body={"completion_id": third, **graded})
    await call(*rate, body={"completion_id": third, "correction": "Yes.", "tags": ["t"], "dry_run": True})
    for path in ("/v1/feedback", "/burnish/completions", "/burnish/passthrough", "/burnish/regenerations"):
        assert (await call("GET", path))["data"] or "regen" in path
    await call("GET", "/v1/feedback/{id}", id=good["id"])
    await call("GET", "/burnish/completions/{id}", id=third)
    await call("DELETE", "/v1/feedback/{id}", id=good["id"])
    await call("POST", "/burnish/command", body={"text": "/rl status"})
    added = await call("POST", "/burnish/instructions", body={"text": "Be brief."})
    await call("PATCH", "/burnish/instructions/{id}", id=added["id"], body={"text": "Be very brief."})
    listed = await call("GET", "/burnish/instructions")
    await call("DELETE", "/burnish/instructions/{id}", id=listed["data"][0]["id"])
    await call("POST", "/burnish/judge", body={"count": 1, "principles": "- Be brief."})
    assert (await call("GET", "/burnish/judge"))["data"]
    for path in (
        "/", "/healthz", "/metrics", "/burnish/status", "/burnish/config", "/burnish/raters", "/burnish/runs",
        "/burnish/adapters", "/burnish/adapters/traffic", "/burnish/agents", "/burnish/duels", "/burnish/reward",
        "/burnish/openapi.json", "/burnish/whoami",
    ):  # fmt: skip
        await call("GET", path)
    rollout = await call("POST", "/v1/rollouts", body={"task": "tea", "seed": 1, "tags": {"a": "b"}})
    await call("POST", "/v1/rollouts/{id}/reward", id=rollout["id"], body={"value": 1, "reason": "hot"})
    await call("POST", "/v1/rollouts/{id}/end", id=rollout["id"])
    await call("GET", "/v1/rollouts/{id}", id=rollout["id"])
    assert (await call("GET", "/v1/rollouts"))["data"]
    pair = await call("POST", "/burnish/duels/ask", body={"prompt": "Which tea?"})
    await call("POST", "/burnish/duels", body={"id": pair["id"], "choice": "left"})
    await call("GET", "/burnish/page/{path}", path="main.js")
    await call("GET", "/burnish/adapters/{n}", n="1")
    await call("POST", "/burnish/adapters/rollback", body={"to": 0})
    await call("POST", "/burnish/adapters/{n}/promote", n="1", body={"force": True})
    await call("POST", "/burnish/adapters/{n}/export", n="1", body={"path": str(tmp_path / "exported")})
    for way in ("pause", "resume"):
        await call("POST", f"/burnish/{way}", body={})
    records = (await call("GET", "/burnish/records"))["data"]
    await call("POST", "/burnish/records", body={"records": [*records[:5], {"object": "x"}], "dry_run": True})
    assert (await call("GET", "/burnish/rated"))["data"]
    assert (await call("GET", "/burnish/rollouts"))["data"]
    await call("GET", "/burnish/users/{user}", user="local")
    await call("DELETE", "/burnish/users/{user}", user="local")
    await call("POST", "/burnish/reset", body={})
    await call("POST", "/burnish/logout")
    described = {(method.upper(), path) for method, path, _ in operations(found)}
    assert described - call.called == set(UNCALLED)


async def test_signing_in_answers_as_described(tmp_path: Path) -> None:
    async with behind(tmp_path, reply(completion()), admin_key="root") as (http, _):
        call = Checked(http, await description(http))
        await call("POST", "/burnish/login", body={"key": "root"})


async def test_every_route_is_closed_to_whoever_lacks_its_key(tmp_path: Path) -> None:
    """New routes, too: what has no action of its own needs the admin_key."""
    free = {"open": "anybody", "ask": "a caller", "rate": "a caller", "watch": "a caller"}
    keys = {"api_key": "caller", "admin_key": "root"}
    async with behind(tmp_path, reply(completion()), **keys) as (http, _):
        seen = set()
        for method, path, operation in operations(await description(http)):
            needs = operation["x-action"]
            seen.add(free.get(needs))
            for sent, opens in (({}, needs == "open"), ({"x-burnish-key": "caller"}, needs in free)):
                headers = sent | {"accept": "text/html"}
                status = (await http.request(method, at(path), headers=headers)).status_code
                assert (status in (401, 403)) is not opens, (method, path, needs, status)
        assert seen == {*free.values(), None}
