"""What a route of ours does, written at its handler. openapi.json and the table in docs/routes.md are made from it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, TypeVar, get_type_hints

from pydantic import BaseModel, Field, create_model
from starlette.requests import Request
from starlette.responses import Response

Handler = Callable[[Request], Awaitable[Response]]
AnyHandler = TypeVar("AnyHandler", bound=Handler)

JSON = "application/json"
DESCRIPTION = "burnish_description"
"""Name of the attribute of a handler."""


@dataclass(frozen=True, slots=True)
class Description:
    does: str
    """Begins with a verb. Markdown; links are relative to docs/."""
    answer: Any
    """Type of the JSON answer."""
    body: type[BaseModel] | None = None
    query: tuple[str, ...] = ()
    """Names of the query's members, all optional."""
    statuses: tuple[int, ...] = (200,)
    media_type: str = JSON
    """Of the answer."""


def described(does: str, answer: Any = dict[str, Any], **details: Any) -> Callable[[AnyHandler], AnyHandler]:
    """Describe a handler; ``details`` are the further fields of ``Description``."""

    def attach(handler: AnyHandler) -> AnyHandler:
        setattr(handler, DESCRIPTION, Description(does, answer, **details))
        return handler

    return attach


@cache
def flat(
    name: str, /, *records: type, without: frozenset[str] = frozenset(), **extra_fields: Any
) -> type[BaseModel]:
    """Return the type of a JSON object that has the fields of several records, and ``extra_fields``: types by name.

    Routes are described when an application is built. To make all the types takes half as long as to build the rest.
    """
    hints = {
        field: hint
        for record in records
        for field, hint in get_type_hints(record).items()
        if field not in without and field != "model_config"
    }
    fields: dict[str, Any] = {
        field: hint if isinstance(hint, tuple) else (hint, ...)
        for field, hint in (hints | extra_fields).items()
    }
    return create_model(name, **fields)


@cache
def optional(kind: Any) -> Any:
    """Return the type of a field that may be absent."""
    return kind, Field(default_factory=lambda: None)


def list_of(record: type) -> Any:
    return list[record]  # type: ignore[valid-type]


def listing(of: type, name: str, /, **extra_fields: Any) -> type[BaseModel]:
    return flat(name, object=Literal["list"], data=list_of(of), **extra_fields)


def page_of(of: type, name: str) -> type[BaseModel]:
    """Return the type of a list that goes on behind its last record."""
    return listing(of, name, has_more=bool)
