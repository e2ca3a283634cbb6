"""``/burnish/duels``."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import StringConstraints
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from burnish.parts.core import Core
from burnish.parts.duels.duels import Duels
from burnish.proxy.access.access import identity_of
from burnish.proxy.described import described, flat, listing
from burnish.proxy.feedback.shapes import page
from burnish.proxy.http.errors import Unprocessable
from burnish.proxy.json_http import Body, caller_of, json_response, page_limit, read_json, validated
from burnish.proxy.log.duels import Duel, DuelChoice
from burnish.proxy.relay.inside import asker_of
from burnish.proxy.rl.grammar import parse

MAX_PROMPT = 20_000
"""Characters; a person reads two answers to it."""
MAX_BODY_BYTES = 8 * MAX_PROMPT
MAX_ID = 64


class Judgement(Body):
    """``POST /burnish/duels``."""

    id: Annotated[str, StringConstraints(strict=True, max_length=MAX_ID)]
    choice: DuelChoice


class Prompt(Body):
    """``POST /burnish/duels/ask``."""

    prompt: Annotated[str, StringConstraints(strict=True, max_length=MAX_PROMPT)]


_SIDE = flat("Side", text=str, cut=bool)
DUEL = flat(
    "Duel",
    object=Literal["duel"],
    id=str,
    prompt=str,
    before=list[dict[str, str]],
    left=_SIDE,
    right=_SIDE,
)
SAME = flat("SameAnswers", object=Literal["duel"], id=None, prompt=str, same=str)
_VERSION = flat("NamedVersion", version=int, name=str)
REVEALED = flat(
    "JudgedDuel",
    object=Literal["duel"],
    id=str,
    choice=DuelChoice,
    left=_VERSION,
    right=_VERSION,
    better=int | None,
    feedback=dict[str, Any] | None,
    usable=bool,
    reason=str | None,
)


def duel_routes(core: Core) -> list[Route]:
    duels = Duels(core)

    @described(
        "pairs of answers to judge, [without their versions](rating.md#duels); `judged` counts, `reason` says why "
        "there are none",
        listing(DUEL, "Duels", has_more=bool, judged=int, reason=str | None, can_ask=bool),
        query=("limit",),
    )
    async def index(request: Request) -> Response:
        limit = page_limit(request)
        pairs, facts = await duels.offered(limit + 1)
        return json_response(page(pairs, limit) | facts)

    @described(
        "judge a pair (`left`, `right`, `equal`); the answer says which version was which",
        REVEALED,
        body=Judgement,
        statuses=(201,),
    )
    async def judge(request: Request) -> Response:
        body = validated(Judgement, await read_json(request, MAX_BODY_BYTES))
        rater, identity = caller_of(request), identity_of(request.scope)
        return json_response(await duels.judge(body.id, body.choice, rater, identity), 201)

    @described(
        "ask two versions, and get their answers as a pair; `same` is what both said, if that is no pair",
        DUEL | SAME,
        body=Prompt,
        statuses=(200, 201),
    )
    async def ask(request: Request) -> Response:
        prompt = validated(Prompt, await read_json(request, MAX_BODY_BYTES)).prompt
        if not prompt.strip():
            raise Unprocessable(
                "prompt must not be empty: write what both versions should answer", param="prompt"
            )
        if parse(prompt):
            raise Unprocessable(
                "prompt must be a question for the model, not a command of burnish", param="prompt"
            )
        duel = await duels.contest.ask(prompt, asker_of(request.scope))
        if not isinstance(duel, Duel):
            return json_response({"object": "duel", "id": None, "prompt": prompt, "same": duel})
        await core.log.add_duels(duel)
        return json_response(await duels.pair(duel), 201)

    return [
        Route("/burnish/duels", index, methods=["GET"]),
        Route("/burnish/duels", judge, methods=["POST"]),
        Route("/burnish/duels/ask", ask, methods=["POST"]),
    ]
