"""HTTP routes of feedback and of the log. Handlers raise BurnishError; the app turns it into a response."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Annotated, Any, Literal

from pydantic import StringConstraints
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from burnish.proxy.access.access import Action, demand, identity_of, may
from burnish.proxy.client_headers import SESSION_HEADERS
from burnish.proxy.described import described, flat, listing, page_of
from burnish.proxy.feedback.shapes import (
    FEEDBACK,
    FULL_COMPLETION,
    PASSTHROUGH,
    RATING_RECEIPT,
    REGENERATION,
    ROW,
    UNDONE,
    Fates,
    brief,
    feedback_json,
    judged_json,
    page,
    quoted,
    record_json,
    rows_json,
    tokens_json,
    told_json,
)
from burnish.proxy.feedback.targets import (
    HISTORY_QUERY,
    MAX_TEXT,
    QUERY,
    FeedbackRequest,
    demand_weight,
    draft_of,
    filters_of,
    history_filters,
    read_feedback,
    yes_or_no,
)
from burnish.proxy.feedback.usability import usability
from burnish.proxy.http.errors import NotFound, Unprocessable
from burnish.proxy.json_http import (
    Body,
    caller_of,
    check_query,
    json_response,
    page_limit,
    read_json,
    validated,
)
from burnish.proxy.log import Log
from burnish.proxy.log.faults import Rules
from burnish.proxy.log.ratings import Rater
from burnish.proxy.records import Completion, Feedback
from burnish.proxy.rl.commands import CommandAnswer, CommandRequest
from burnish.proxy.rl.grammar import parse

MAX_BODY_BYTES = 1024 * 1024
"""Largest body; the longest comment and correction fit in."""

SESSION_HEADER = SESSION_HEADERS[0].decode()


def feedback_routes(
    log: Log, on_feedback: Callable[[Feedback], None], rules: Rules, fates: Callable[[], Awaitable[Fates]]
) -> list[Route]:
    """Return the routes of feedback and raters; calls ``on_feedback`` for each new record and each undo."""

    @described(
        "[rate an answer](rating.md#over-http), or with `dry_run` only see what would be stored",
        RATING_RECEIPT,
        body=FeedbackRequest,
        statuses=(200, 201),
    )
    async def create(request: Request) -> Response:
        return await _rate(request, log, on_feedback, rules)

    @described(
        "list feedback, and [whether it can teach](rating.md#ratings-that-cant-teach)",
        page_of(FEEDBACK, "Feedbacks"),
        query=("limit", *QUERY),
    )
    async def index(request: Request) -> Response:
        limit = page_limit(request, *QUERY)
        rows = await log.judged_feedbacks(limit=limit + 1, **filters_of(request.query_params))
        did = await fates()
        return json_response(page([told_json(*row, rules, did) for row in rows], limit))

    @described("show feedback", FEEDBACK)
    async def show(request: Request) -> Response:
        feedback = await _own(log, request)
        try:
            target = await log.completion(feedback.draft.completion_id)
        except NotFound:
            target = None
        return json_response(told_json(feedback, target, rules, await fates()))

    @described("undo feedback", UNDONE)
    async def undo(request: Request) -> Response:
        feedback = await log.undo_feedback((await _own(log, request)).id)
        on_feedback(feedback)
        target, choice = await log.completion(feedback.draft.completion_id), feedback.draft.choice
        state = {"rated": target.rated(choice), "about": _about(target, choice, request)}
        return json_response(told_json(feedback, target, rules, await fates()) | state)

    return [
        Route("/v1/feedback", create, methods=["POST"]),
        Route("/v1/feedback", index, methods=["GET"]),
        Route("/v1/feedback/{id}", show, methods=["GET"]),
        Route("/v1/feedback/{id}", undo, methods=["DELETE"]),
        _rater_route(log, rules),
    ]


def _rater_route(log: Log, rules: Rules) -> Route:
    @described(
        "who rates how, and how often raters agree", listing(flat("Rater", Rater, weight=float), "Raters")
    )
    async def raters(request: Request) -> Response:
        rows = [
            {**asdict(rater), "weight": rules.rater_weights.get(rater.name, 1.0)}
            for rater in await log.raters()
        ]
        return json_response({"object": "list", "data": rows})

    return Route("/burnish/raters", raters, methods=["GET"])


async def _rate(
    request: Request, log: Log, on_feedback: Callable[[Feedback], None], rules: Rules
) -> Response:
    feedback_request = read_feedback(await read_json(request, MAX_BODY_BYTES, untyped=True))
    caller, identity, dry_run = caller_of(request), identity_of(request.scope), feedback_request.dry_run
    demand_weight(feedback_request, identity, caller)
    draft, target = await draft_of(
        feedback_request, log, caller, request.headers.get(SESSION_HEADER), identity
    )
    receipt = await (log.preview_feedback if dry_run else log.add_feedback)(draft)
    is_new = receipt.created and not dry_run
    if is_new:
        on_feedback(receipt.feedback)
    draft = receipt.feedback.draft
    if draft.completion_id != target.id:  # the key's first record
        target = await log.completion(draft.completion_id)
    worse = await log.worse(draft.answer, draft.preferred_over) if draft.preferred_over else None
    answer = usability(draft, target, worse, receipt.covered_answers, rules=rules)._asdict()
    answer |= {"repeated": not receipt.created, "about": _about(target, draft.choice, request)}
    if dry_run:
        answer |= {"dry_run": True, "rated": target.rated(draft.choice)}
        if receipt.created:
            answer |= {"id": None, "created_at": None}
    return json_response(feedback_json(receipt.feedback) | answer, 201 if is_new else 200)


def _about(completion: Completion, choice: int, request: Request) -> dict[str, str] | None:
    """Return what was rated, for those whose name is proved: others could name anybody."""
    return quoted(completion, choice) if may(identity_of(request.scope), Action.AS_NAMED) else None


async def _own(log: Log, request: Request) -> Feedback:
    """Return the feedback that a request names, if it was given with the same key. Raises NotFound, Forbidden."""
    identity, feedback = identity_of(request.scope), await log.feedback(request.path_params["id"])
    if feedback.draft.given_with != identity.key:
        demand(identity, Action.READ, "feedback that was given with another key")
    return feedback


class Typed(Body):
    text: Annotated[str, StringConstraints(strict=True, max_length=MAX_TEXT)]


def command_route(answer: CommandAnswer) -> Route:
    """Return the route for ``/rl`` commands that don't reach the model. The session header names the session."""

    @described(
        "run a `/rl` command on the last answer (of the session in `x-burnish-session`), for agents that keep "
        "it from the model",
        flat("Answered", object=Literal["command"], answer=str),
        body=Typed,
    )
    async def run_command(request: Request) -> Response:
        typed = validated(Typed, await read_json(request, MAX_BODY_BYTES))
        command = parse(typed.text)
        if command is None:
            raise Unprocessable(
                f'text must be a command such as "/rl good", not {typed.text!r}', param="text"
            )
        session = request.headers.get(SESSION_HEADER)
        identity = identity_of(request.scope)
        text = await answer(CommandRequest(command, None, caller_of(request), session, identity))
        return json_response({"object": "command", "answer": text})

    return Route("/burnish/command", run_command, methods=["POST"])


def completion_routes(
    log: Log,
    on_forgotten: Callable[[str], Awaitable[None]],
    rules: Rules,
    fates: Callable[[], Awaitable[Fates]],
) -> list[Route]:
    """Return the routes of the log; calls ``on_forgotten`` with the name of an erased user."""

    @described(
        "list completions with their feedback, newest first, [filtered](rating.md#find-rated-answers); without "
        "contexts; of an error the first 200 characters, of a prompt 500. A long reply is `shortened`. `agent` is the "
        "program that asked, by its User-Agent, such as `claude-code`",
        page_of(ROW, "Completions"),
        query=("limit", *HISTORY_QUERY),
    )
    async def index(request: Request) -> Response:
        query, limit = request.query_params, page_limit(request, *HISTORY_QUERY)
        completions = await log.completions(limit + 1, query.get("before"), history_filters(query))
        return json_response(page(rows_json(completions, rules, await fates()), limit))

    @described(
        "one completion with context, reply and feedback; each piece says [whether it can "
        "teach](rating.md#ratings-that-cant-teach), and which version learnt it. `tokens` counts [its token "
        "ids](engines.md#token-ids) if they were captured; `?tokens=true` shows them",
        FULL_COMPLETION,
        query=("tokens",),
    )
    async def show(request: Request) -> Response:
        check_query(request, "tokens")
        full = yes_or_no("tokens", request.query_params.get("tokens")) or False
        completion = await log.completion(request.path_params["id"])
        details = {
            "next_turn": await log.next_turn(completion.id),
            "tokens": tokens_json((await log.tokens([completion.id])).get(completion.id), full=full),
        }
        return json_response(judged_json(completion, rules, await fates()) | details)

    return [
        Route("/burnish/completions", index, methods=["GET"]),
        Route("/burnish/completions/{id}", show, methods=["GET"]),
        *_record_routes(log),
        *_user_routes(log, on_forgotten),
    ]


def _record_routes(log: Log) -> list[Route]:
    @described(
        "list [regenerated answers](rating.md#regenerated-answers)",
        page_of(REGENERATION, "Regenerations"),
        query=("limit", "before", "conversation"),
    )
    async def again(request: Request) -> Response:
        query, limit = request.query_params, page_limit(request, "before", "conversation")
        records = await log.regenerations(limit + 1, query.get("before"), query.get("conversation"))
        return json_response(
            page([{"object": "regeneration", **asdict(record)} for record in records], limit)
        )

    @described(
        "list [passthrough records](formats.md#everything-else)",
        page_of(PASSTHROUGH, "Passthroughs"),
        query=("limit", "before"),
    )
    async def passthrough(request: Request) -> Response:
        limit = page_limit(request, "before")
        records = await log.passthroughs(limit + 1, request.query_params.get("before"))
        return json_response(page([brief(record_json(record)) for record in records], limit))

    return [
        Route("/burnish/passthrough", passthrough, methods=["GET"]),
        Route("/burnish/regenerations", again, methods=["GET"]),
    ]


def _user_routes(log: Log, on_forgotten: Callable[[str], Awaitable[None]]) -> list[Route]:
    @described(
        "export everything of one user, earliest first",
        page_of(dict[str, Any], "Personal"),
        query=("limit", "after"),
    )
    async def export(request: Request) -> Response:
        user, limit = request.path_params["user"], page_limit(request, "after")
        records = await log.records(request.query_params.get("after", ""), limit + 1, user)
        rows = [record_json(record) for record in records[:limit]]
        if len(records) <= limit:
            rows += [
                {"object": "instruction", **asdict(instruction)}
                for instruction in await log.instructions(user)
            ]
        return json_response({"object": "list", "data": rows, "has_more": len(records) > limit})

    @described("erase one user", flat("Erased", object=Literal["user"], user=str, erased=int))
    async def forget(request: Request) -> Response:
        user = request.path_params["user"]
        erased = await log.forget(user)
        await on_forgotten(user)
        return json_response({"object": "user", "user": user, "erased": erased})

    return [
        Route("/burnish/users/{user:path}", export, methods=["GET"]),
        Route("/burnish/users/{user:path}", forget, methods=["DELETE"]),
    ]
