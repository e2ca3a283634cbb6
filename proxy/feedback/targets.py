"""The body of ``POST /v1/feedback``: validated, then resolved to one completion."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated, Any, Literal, cast, get_args

from pydantic import BeforeValidator, Field, StrictBool, StringConstraints

from burnish.proxy.access.access import Action, Identity, demand
from burnish.proxy.http.errors import Forbidden, NotFound, Unprocessable
from burnish.proxy.json_http import Body, validated
from burnish.proxy.log import Log
from burnish.proxy.log.listings import Filters, RatingFilter
from burnish.proxy.plain import Line
from burnish.proxy.records import (
    LIKERT,
    LIKERT_IN_WORDS,
    Completion,
    FeedbackDraft,
    Scope,
    Source,
    answer_name,
)

MAX_TEXT = 100_000
"""Characters of a comment or a correction; a correction may be a whole document."""
MAX_NAME = 256
"""Characters of an ID, a rater, a tag or a key."""
MAX_SEARCH = 200
MAX_TAGS = 32
MAX_WEIGHT = 100.0
"""Keeps one rater from outweighing everyone else."""

PATIENCE_S = 2.0
"""Longest wait for an answer that is just ending. A client may cancel and rate it before burnish sees the close."""
POLL_S = 0.05

MADE_UP = (
    "Some clients, such as litellm, make up ids of their own: rate by the response header x-burnish-completion-id (as "
    'completion_id), by "last": true, or with `burnish good`'
)

ANSWER_NAME = re.compile(r"([^/]+)(?:/(\d{1,4}))?", re.ASCII)
"""A completion's ID and the number of a choice, as in ``records.answer_name``."""
WORDS = {"good": 1.0, "bad": -1.0, True: 1.0, False: -1.0}


def _not_empty(text: Any) -> Any:
    if isinstance(text, str) and not text.strip():
        raise ValueError("must not be empty: write something, or leave the field out")
    return text


Name = Annotated[str, StringConstraints(strict=True, min_length=1, max_length=MAX_NAME)]
Label = Annotated[Line, StringConstraints(strict=True, min_length=1, max_length=MAX_NAME)]
Text = Annotated[str, StringConstraints(strict=True, max_length=MAX_TEXT), BeforeValidator(_not_empty)]

TARGETS = ("completion_id", "response_id", "conversation_id", "last")
SAME = ("completion_id", "conversation_id", "before", "rater", "source", "tag")
"""Members of the query of a list that filter by equal values."""
SIDES = {"good": "above", "bad": "below"}
QUERY = (*SAME, "rating", "version")
HISTORY_QUERY = ("before", *Filters._fields)
STATEMENTS = ("rating", "comment", "correction", "preferred_over")


class FeedbackRequest(Body):
    completion_id: Name | None = None
    response_id: Name | None = None
    conversation_id: Name | None = None
    last: StrictBool | None = None
    choice: Annotated[int, Field(ge=0, strict=True)] | None = None
    rating: Any = None
    scale: Literal["binary", "scalar", "likert"] | None = None
    comment: Text | None = None
    correction: Text | None = None
    preferred_over: Name | None = None
    scope: Scope = "completion"
    source: Source = "human"
    rater: Label | None = None
    weight: Annotated[float, Field(gt=0, le=MAX_WEIGHT, strict=True)] = 1.0
    tags: Annotated[list[Label], Field(default_factory=list, max_length=MAX_TAGS)]
    idempotency_key: Name | None = None
    dry_run: StrictBool = False

    @property
    def targets(self) -> list[str]:
        return [name for name in TARGETS if getattr(self, name) is not None]


def read_feedback(body: Any) -> FeedbackRequest:
    """Validate a body. Raises Unprocessable, which names the wrong field and its allowed values."""
    request = validated(FeedbackRequest, body)
    if len(request.targets) != 1:
        names = " and ".join(request.targets) or "none"
        raise Unprocessable(
            f"give exactly one of {', '.join(TARGETS)}, not {names}",
            param=request.targets[1] if request.targets else "completion_id",
        )
    if request.source == "duel":
        raise Unprocessable(
            "source 'duel' comes only from POST /burnish/duels, where nobody knows which answer is whose: leave it out",
            param="source",
        )
    if request.last is False:
        raise Unprocessable("last must be true, or left out", param="last")
    if all(getattr(request, name) is None for name in STATEMENTS):
        raise Unprocessable(f"give at least one of {', '.join(STATEMENTS)}", param="rating")
    return request


def reward_of(rating: Any, scale: str | None) -> tuple[float | None, str | None]:
    """Return the reward in [-1, 1] and the scale it was given on. Raises Unprocessable."""
    if rating is None:
        if scale is not None:
            raise Unprocessable("scale needs a rating: add one, or leave scale out", param="scale")
        return None, None
    number = isinstance(rating, int | float) and not isinstance(rating, bool)
    if scale == "likert":
        if not number or rating not in range(1, len(LIKERT) + 1):
            raise Unprocessable(
                f"rating must be a whole number from 1 to 5 on the likert scale ({LIKERT_IN_WORDS}), "
                f"not {rating!r}",
                param="rating",
            )
        return (float(rating) - 3) / 2, scale
    if isinstance(rating, str | bool) and rating in WORDS and scale != "scalar":
        return WORDS[rating], "binary"
    if number and -1 <= rating <= 1 and scale != "binary":
        return float(rating), "scalar"
    allowed = {"binary": '"good", "bad", true or false', "scalar": "a number from -1 to 1"}.get(
        scale or "", '"good", "bad", true, false, a number from -1 to 1, or 1 to 5 with "scale": "likert"'
    )
    raise Unprocessable(f"rating must be {allowed}, not {rating!r}", param="rating")


def filters_of(query: Mapping[str, str]) -> dict[str, object]:
    """Return the filters that the query of a list of feedback names. Raises Unprocessable."""
    filters: dict[str, object] = {name: query[name] for name in SAME if name in query}
    _one_of("source", query.get("source"), get_args(Source))
    if rating := query.get("rating"):
        filters |= {SIDES[rating]: 0.0} if rating in SIDES else {"reward": _number(rating)}
    if version := query.get("version"):
        filters["version"] = _version(version)
    return filters


def history_filters(query: Mapping[str, str]) -> Filters:
    """Return the filters that the query of a list of completions names. Raises Unprocessable."""
    version, words = query.get("version"), query.get("q")
    if words is not None and (not words.strip() or len(words) > MAX_SEARCH):
        raise Unprocessable(f"q must be words, of at most {MAX_SEARCH} characters in all", param="q")
    rating = _one_of("rating", query.get("rating"), get_args(RatingFilter))
    return Filters(
        conversation=query.get("conversation"),
        rater=query.get("rater"),
        rating=cast(RatingFilter | None, rating),
        version=None if version is None else _version(version),
        agent=query.get("agent"),
        failed=yes_or_no("failed", query.get("failed")),
        q=words,
    )


def _one_of(name: str, answer: str | None, allowed: tuple[str, ...]) -> str | None:
    if answer is not None and answer not in allowed:
        raise Unprocessable(f"{name} must be one of {', '.join(allowed)}, not {answer[:40]!r}", param=name)
    return answer


def yes_or_no(name: str, answer: str | None) -> bool | None:
    """Read a member of a query. Raises Unprocessable."""
    if answer not in (None, "true", "false"):
        raise Unprocessable(f"{name} must be true or false, not {answer[:40]!r}", param=name)
    return None if answer is None else answer == "true"


def _version(version: str) -> int:
    number = version.removeprefix("v")
    if version != "base" and not (number.isascii() and number.isdecimal()):
        raise Unprocessable(
            f"version must be a version such as 3 or v3, or base, not {version[:40]!r}", param="version"
        )
    return 0 if version == "base" else int(number[:9])


def _number(rating: str) -> float:
    with suppress(ValueError):
        if -1 <= float(rating) <= 1:
            return float(rating)
    raise Unprocessable(f"rating must be good, bad, or a number from -1 to 1, not {rating!r}", param="rating")


def demand_weight(request: FeedbackRequest, identity: Identity, caller: str) -> None:
    """Raise Forbidden for a weight, a source or a rater that an identity may not claim."""
    if request.weight != 1:
        demand(identity, Action.WEIGH, "a weight", param="weight")
    if request.source != "human":
        demand(identity, Action.WEIGH, f"the source {request.source!r}", param="source")
    if identity.key == "proxy" and request.rater not in (None, caller):
        raise Forbidden(
            f"you rate as {caller}, which the proxy before burnish says: leave rater out", param="rater"
        )


async def draft_of(
    request: FeedbackRequest, log: Log, caller: str, session: str | None, identity: Identity
) -> tuple[FeedbackDraft, Completion]:
    """Resolve the target, and return it with the record to store. Raises NotFound, Conflict, Unprocessable."""
    reward, scale = reward_of(request.rating, request.scale)
    target = await _target(request, log, caller, session)
    choice = _choice(request, target)
    draft = FeedbackDraft(
        completion_id=target.id,
        target=request.targets[0],
        choice=choice,
        reward=reward,
        scale=scale,
        comment=request.comment,
        correction=request.correction,
        preferred_over=await _worse(request.preferred_over, answer_name(target.id, choice), log),
        scope=request.scope,
        source=request.source,
        rater=request.rater or caller,
        weight=request.weight,
        tags=tuple(request.tags),
        idempotency_key=request.idempotency_key,
        given_with=identity.key,
    )
    return draft, target


def _choice(request: FeedbackRequest, target: Completion) -> int:
    """Return the choice that a request rates. Raises Unprocessable."""
    if not request.choice:
        return 0
    if request.scope != "completion":
        raise Unprocessable("choice names one answer: leave scope out", param="choice")
    return _among(target, request.choice, "choice")


def _among(completion: Completion, choice: int, param: str) -> int:
    """Return one of a completion's choices; 0 is its first one, whatever its index. Raises Unprocessable."""
    indexes = [alternative.index for alternative in completion.choices] or [0]
    if choice not in (0, *indexes):
        raise Unprocessable(
            f"{param} must name one of the choices of {completion.id}, {indexes[0]} to {indexes[-1]}, not {choice}",
            param=param,
        )
    return 0 if choice == indexes[0] else choice


async def _target(request: FeedbackRequest, log: Log, caller: str, session: str | None) -> Completion:
    target_id = request.completion_id or request.response_id
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return await log.resolve(
                completion_id=request.completion_id,
                response_id=request.response_id,
                conversation_id=request.conversation_id,
                last_of=caller if request.last else None,
                session=session if request.last else None,
            )
        except NotFound as error:
            if target_id is None:
                raise
            if time.monotonic() > deadline:
                hint = "" if target_id.startswith("cmpl_") else f". {MADE_UP}"
                raise NotFound(
                    f"{error.message}; an answer can be rated once it has ended{hint}", param=error.param
                ) from error
        await asyncio.sleep(POLL_S)


async def _worse(preferred_over: str | None, better: str, log: Log) -> str | None:
    """Return the name of the answer that ``better``, also a name, is preferred over."""
    if preferred_over is None:
        return None
    param = "preferred_over"
    match = ANSWER_NAME.fullmatch(preferred_over)
    if match is None:
        raise Unprocessable(
            f"{param} must be the id of a completion, or an id, / and the number of its choice, "
            f"not {preferred_over!r}",
            param=param,
        )
    try:
        worse = await log.resolve(completion_id=match[1])
    except NotFound as error:
        raise NotFound(f"{param}: {error.message}", param=param) from error
    name = answer_name(worse.id, _among(worse, int(match[2] or 0), param))
    if name == better:
        raise Unprocessable(
            "an answer can't be preferred over itself: name another completion, or another choice of this one, "
            f"such as {worse.id}/1",
            param=param,
        )
    return name
