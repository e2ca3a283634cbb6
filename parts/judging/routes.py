"""``/burnish/judge``."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import asdict
from typing import Annotated, Any, Literal

import orjson
from pydantic import Field, StringConstraints
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from burnish.parts.core import Core
from burnish.parts.judging import principles, report
from burnish.parts.judging.judging import JudgePlan, Judging
from burnish.parts.judging.report import JudgeReport, Share
from burnish.proxy.described import described, flat, listing
from burnish.proxy.http.errors import BurnishError
from burnish.proxy.json_http import Body, json_response, page_limit, read_json, validated
from burnish.proxy.relay.inside import Asker, asker_of

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


def judging_routes(core: Core) -> list[Route]:
    judging, data_dir = Judging(core), core.config.data_dir

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
        lines = _lines(judging, plan, None if body.dry_run else asker_of(request.scope))
        return StreamingResponse(lines, headers={"cache-control": "no-store"}, media_type=LINES)

    @described(
        "[reports](judge.md#what-the-report-says) of earlier judgings, newest first, and how often people agree with "
        "what the judge says now",
        listing(REPORT, "JudgeReports", has_more=bool, agreement=_SHARE),
        query=("limit",),
    )
    async def index(request: Request) -> Response:
        limit = page_limit(request)
        rows = report.kept(data_dir)
        agreement = report.share(*await core.log.agreement_with_judges())
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


async def _lines(judging: Judging, plan: JudgePlan, asker: Asker | None) -> AsyncIterator[bytes]:
    """``asker`` None: only say what would be judged."""
    yield _line(
        {
            "object": "judge_plan",
            "model": plan.model,
            "principles": plan.principles.texts,
            "count": len(plan.completions),
            "left_out": plan.left_out,
        }
    )
    if asker is None:
        return
    try:
        async for outcome in judging.judged(plan, asker):
            if isinstance(outcome, JudgeReport):
                yield _line(report.to_json(outcome))
            else:
                yield _line({"object": "judgement", **asdict(outcome)})
    except BurnishError as error:
        yield _line(error.envelope())


def _line(content: dict[str, Any]) -> bytes:
    return orjson.dumps(content) + b"\n"
