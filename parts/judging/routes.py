"""``/burnish/judge``."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

import orjson
from pydantic import Field, StringConstraints
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from burnish.parts.judging import principles, reports
from burnish.parts.judging.asking import JudgeCaller
from burnish.parts.judging.judgement import ReplyJudgement
from burnish.parts.judging.judging import JudgePlan, Judging, StoredJudgement
from burnish.parts.judging.report import JudgeReport, Share, share
from burnish.proxy.access.access import identity_of
from burnish.proxy.described import described, flat, listing
from burnish.proxy.http.errors import BurnishError
from burnish.proxy.json_http import Body, json_response, page_limit, read_json, validated
from burnish.proxy.log import Log

MAX_TEXT = 50_000
"""Characters of principles in a request."""
MAX_BODY_BYTES = 8 * MAX_TEXT
MAX_NAME = 500
LINES = "application/x-ndjson"


class JudgeRequest(Body):
    """``POST /burnish/judge``."""

    count: Annotated[int, Field(strict=True, ge=1, le=1000)] = 20
    model: Annotated[str, StringConstraints(strict=True, min_length=1, max_length=MAX_NAME)] | None = None
    principles: Annotated[str, StringConstraints(strict=True, max_length=MAX_TEXT)] | None = None
    dry_run: Annotated[bool, Field(strict=True)] = False


_SHARE = flat("Share", Share)
REPORT = flat(
    "JudgeReport",
    JudgeReport,
    object=Literal["judge_report"],
    ties=_SHARE,
    longer_preferred=_SHARE,
    first_picked=_SHARE,
    warnings=list[str],
)


def judging_routes(judging: Judging, log: Log, data_dir: Path) -> list[Route]:
    @described(
        "have a model [judge answers](judge.md) by principles: one JSON object a line, first the plan, then each "
        "judgement, at last the report. It ends when the client leaves",
        str,
        body=JudgeRequest,
        media_type=LINES,
    )
    async def begin(request: Request) -> Response:
        body = validated(JudgeRequest, await read_json(request, MAX_BODY_BYTES))
        judging.check_free()
        text = body.principles
        principle_list = (
            principles.read(data_dir) if text is None else principles.parse(text, "the principles")
        )
        plan = await judging.plan(principle_list, body.count, body.model)
        asker = JudgeCaller(identity_of(request.scope), request.headers.get("authorization"))
        lines = _lines(judging, plan, asker, dry_run=body.dry_run)
        return StreamingResponse(lines, headers={"cache-control": "no-store"}, media_type=LINES)

    @described(
        "[reports](judge.md#what-the-report-says) of earlier judgings, newest first, and how often people agree with "
        "what the judge says now",
        listing(REPORT, "JudgeReports", has_more=bool, agreement=_SHARE),
        query=("limit",),
    )
    async def index(request: Request) -> Response:
        limit = page_limit(request)
        rows = reports.kept(data_dir)
        agreement = share(*await log.agreement_with_judges())
        return json_response(
            {
                "object": "list",
                "data": rows[:limit],
                "has_more": len(rows) > limit,
                "agreement": asdict(agreement),
            }
        )

    return [
        Route("/burnish/judge", begin, methods=["POST"]),
        Route("/burnish/judge", index, methods=["GET"]),
    ]


async def _lines(
    judging: Judging, plan: JudgePlan, asker: JudgeCaller, *, dry_run: bool
) -> AsyncIterator[bytes]:
    yield _line(_plan_json(plan))
    if dry_run:
        return
    try:
        async for outcome in judging.judged(plan, asker):
            yield _line(
                reports.to_json(outcome) if isinstance(outcome, JudgeReport) else _judgement_json(outcome)
            )
    except BurnishError as error:
        yield _line(error.envelope())


def _line(content: dict[str, Any]) -> bytes:
    return orjson.dumps(content) + b"\n"


def _plan_json(plan: JudgePlan) -> dict[str, Any]:
    return {
        "object": "judge_plan",
        "model": plan.model,
        "principles": plan.principles.texts,
        "count": len(plan.cases),
        "left_out": plan.left_out,
    }


def _judgement_json(outcome: StoredJudgement) -> dict[str, Any]:
    judgement: ReplyJudgement = outcome.judgement
    return {
        "object": "judgement",
        "completion_id": judgement.completion_id,
        "outcome": judgement.outcome,
        "fault": judgement.fault,
        "details": judgement.details,
        "critique": judgement.critique,
        "revision": judgement.revision,
        "feedback_id": outcome.feedback.id if outcome.feedback else None,
    }
