"""``GET /burnish/openapi.json``: all routes of ours in OpenAPI 3.1, from what their handlers say of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Any

from pydantic import TypeAdapter
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

import burnish
from burnish.parts.page.paths import FILES
from burnish.proxy.access.access import Action, action_at
from burnish.proxy.described import DESCRIPTION, JSON, Description, described
from burnish.proxy.json_http import DEFAULT_PAGE, MAX_PAGE, json_response

PATH_PARAMETER = re.compile(r"\{(\w+)(?::(\w+))?\}")
SCHEMAS = "#/components/schemas/"
KEYS = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "header": {"type": "apiKey", "in": "header", "name": "x-burnish-key"},
}
"""Ways to send a key."""
FOR_ANYBODY = ("/", FILES + "{path}")
LIMIT = {"type": "integer", "minimum": 1, "maximum": MAX_PAGE, "default": DEFAULT_PAGE}
ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string", "description": "What happened, what was expected, what to do."},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"], "description": "The wrong field of the request."},
                "code": {"type": "string"},
            },
        }
    },
}


def openapi_route(routes: Sequence[Route]) -> Route:
    """Return the route of the description of these routes and itself."""
    all_routes = list(routes)
    for each in all_routes:
        if not hasattr(each.endpoint, DESCRIPTION):
            raise TypeError(f"{each.path}: say what {each.endpoint.__name__} does with @described")

    @cache
    def made() -> dict[str, Any]:
        return document(all_routes)

    @described("this description of all routes, in OpenAPI 3.1")
    async def openapi(request: Request) -> Response:
        return json_response(made())

    route = Route("/burnish/openapi.json", openapi, methods=["GET"])
    all_routes.append(route)
    return route


def document(routes: Sequence[Route]) -> dict[str, Any]:
    paths: dict[str, dict[str, Any]] = {}
    schemas: dict[str, Any] = {"Error": ERROR}
    for route in routes:
        path = PATH_PARAMETER.sub(r"{\1}", route.path)
        for method in sorted((route.methods or set()) - {"HEAD"}):
            paths.setdefault(path, {})[method.lower()] = _operation(route, method, path, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "burnish",
            "version": burnish.__version__,
            "description": "burnish's own routes. Every other path goes to the upstream. Links are relative to docs/.",
        },
        "paths": paths,
        "components": {"schemas": schemas, "securitySchemes": KEYS},
    }


def _operation(route: Route, method: str, path: str, schemas: dict[str, Any]) -> dict[str, Any]:
    says: Description = getattr(route.endpoint, DESCRIPTION)
    needs = Action.OPEN if path in FOR_ANYBODY else action_at(method, path)
    answer = {says.media_type: {"schema": _schema(says.answer, "serialization", schemas)}}
    error = {"description": "An error", "content": {JSON: {"schema": {"$ref": SCHEMAS + "Error"}}}}
    operation: dict[str, Any] = {
        "operationId": f"{method.lower()}{re.sub(r'[^a-z0-9]+', '_', path)}".rstrip("_"),
        "summary": re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", says.does).partition(". ")[0],
        "description": says.does,
        "parameters": [*_in_path(route), *map(_in_query, says.query)],
        "responses": {str(status): {"description": "Success", "content": answer} for status in says.statuses},
        "x-action": needs.name.lower(),
    }
    operation["responses"]["default"] = error
    # A burnish without keys takes none.
    operation["security"] = [{name: []} for name in KEYS] if needs is not Action.OPEN else []
    if says.body:
        schema = _schema(says.body, "validation", schemas)
        operation["requestBody"] = {"required": True, "content": {JSON: {"schema": schema}}}
    return operation


def _in_path(route: Route) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": {"type": "integer", "minimum": 0} if kind == "int" else {"type": "string"},
        }
        for name, kind in PATH_PARAMETER.findall(route.path)
    ]


def _in_query(name: str) -> dict[str, Any]:
    return {"name": name, "in": "query", "schema": LIMIT if name == "limit" else {"type": "string"}}


def _schema(kind: Any, mode: Any, schemas: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a type; named ones it refers to go into ``schemas``."""
    found = TypeAdapter(kind).json_schema(mode=mode, ref_template=SCHEMAS + "{model}")
    named = found.pop("$defs", {})
    if found.get("type") == "object" and "properties" in found:
        named[found["title"]] = found
        found = {"$ref": SCHEMAS + found["title"]}
    for name, schema in named.items():
        if schemas.setdefault(name, schema) != schema:
            raise TypeError(f"two types are called {name}: rename one of them")
    return found
