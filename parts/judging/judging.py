"""Has a judge look at logged answers, and stores what it prefers as feedback."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import NamedTuple

import orjson
from starlette.types import ASGIApp

from burnish.config.config import Config
from burnish.parts.judging import reports
from burnish.parts.judging.asking import OF_THE_UPSTREAM, Judge, JudgeCaller
from burnish.parts.judging.choosing import RATER, TAG, Case, case, why_not
from burnish.parts.judging.judgement import ReplyJudgement, judge
from burnish.parts.judging.principles import Principles
from burnish.parts.judging.report import JudgeReport, report
from burnish.proxy.http.errors import Conflict, NotFound
from burnish.proxy.ids import completion_id
from burnish.proxy.log import Log
from burnish.proxy.log.faults import Rules
from burnish.proxy.log.listings import Filters
from burnish.proxy.records import (
    Answerer,
    Completion,
    CompletionEnd,
    Feedback,
    FeedbackDraft,
    RequestFacts,
    Wire,
)

LOOKED_AT = 1_000
"""Latest answers among which it chooses."""
PAGE = 100
MOST_IN_A_ROW = 3
"""Failures of the judge's upstream after which it isn't asked any more."""
SESSION = "judge"
"""Of the revisions in the log."""


@dataclass(frozen=True, slots=True)
class JudgePlan:
    """What would be judged."""

    principles: Principles
    model: str
    cases: tuple[Case, ...]
    left_out: dict[str, int]
    """Answers that were looked at and aren't judged, by reason."""


class StoredJudgement(NamedTuple):
    """One judgement, and the feedback that it became."""

    judgement: ReplyJudgement
    feedback: Feedback | None


class Judging:
    """The judge of one log. It judges for one caller at a time."""

    def __init__(
        self,
        log: Log,
        relay: ASGIApp,
        config: Config,
        rules: Rules,
        *,
        base_model: str,
        upstream: str,
        on_feedback: Callable[[Feedback], None],
    ) -> None:
        """``base_model``: judges by default. ``upstream``: its name in the log."""
        self._log = log
        self._relay = relay
        self._config = config
        self._rules = rules
        self._base_model = base_model
        self._upstream = upstream
        self._on_feedback = on_feedback
        self._busy = False

    async def plan(self, principles: Principles, count: int, model: str | None) -> JudgePlan:
        """Choose answers for a judge. Raises Conflict, Unavailable."""
        model = model or self._base_model
        self._check_teaches(model)
        undecided = reports.undecided(reports.kept(self._config.data_dir), principles.digest, model)
        tag, cases, left_out = TAG + principles.digest, list[Case](), Counter[str]()
        async for completion in self._latest():
            if reason := why_not(completion, self._rules, tag, undecided):
                left_out[reason] += 1
            else:
                cases.append(case(completion))
            if len(cases) == count:
                break
        return JudgePlan(principles, model, tuple(cases), dict(left_out))

    async def judged(
        self, plan: JudgePlan, asker: JudgeCaller
    ) -> AsyncIterator[StoredJudgement | JudgeReport]:
        """Have the planned answers judged one after the other; the report comes last. Raises Conflict, Unavailable.

        The report is kept also if nobody waits for the end.
        """
        began, judgements, reason = time.time(), list[StoredJudgement](), "it was stopped"

        def reported() -> JudgeReport:
            return report(
                [stored_judgement.judgement for stored_judgement in judgements],
                plan.principles,
                model=plan.model,
                created_at=began,
                feedback_count=sum(stored_judgement.feedback is not None for stored_judgement in judgements),
                end_reason=reason if len(judgements) < len(plan.cases) else None,
            )

        with self._alone():
            try:
                judge_model, in_a_row = Judge(self._relay, plan.model, asker), 0
                for case in plan.cases:
                    judgement = await judge(
                        judge_model, plan.principles, case.completion.id, case.completion.messages, case.reply
                    )
                    judgements.append(
                        StoredJudgement(judgement, await self._store(plan, case, judgement, asker))
                    )
                    yield judgements[-1]
                    in_a_row = in_a_row + 1 if judgement.fault in OF_THE_UPSTREAM else 0
                    if in_a_row == MOST_IN_A_ROW:
                        reason = f"the judge failed {MOST_IN_A_ROW} times in a row"
                        break
            finally:
                if judgements:
                    reports.keep(self._config.data_dir, reported())
        yield reported()

    @contextmanager
    def _alone(self) -> Iterator[None]:
        self.check_free()
        self._busy = True
        try:
            yield
        finally:
            self._busy = False

    def check_free(self) -> None:
        """Raises Conflict."""
        if self._busy:
            raise Conflict("a judge is at work already: try again when it has ended", code="judging")

    def _check_teaches(self, model: str) -> None:
        """Raise Conflict if the model belongs to a further upstream that must not teach: a judge's words are learnt."""
        table = self._table_of(model)
        if table is not None and table not in self._config.teachers:
            raise Conflict(
                f"[upstreams.{table}] answers for {model}, and what it says isn't learnt. To let it judge, if its "
                f"terms allow that, set teaches = true in [upstreams.{table}]",
                code="not_teaching",
            )

    def _table_of(self, model: str) -> str | None:
        return next(
            (name for name, upstream in self._config.upstreams.items() if upstream.claims(model)), None
        )

    async def _latest(self) -> AsyncIterator[Completion]:
        cursor = None
        for _ in range(0, LOOKED_AT, PAGE):
            page = await self._log.completions(PAGE, cursor, Filters())
            for row in page:
                with suppress(NotFound):  # erased in this moment
                    yield await self._log.completion(row.id)
            if len(page) < PAGE:
                return
            cursor = page[-1].id

    async def _store(
        self, plan: JudgePlan, case: Case, judgement: ReplyJudgement, asker: JudgeCaller
    ) -> Feedback | None:
        """Store a preference, and take back what the judge said by earlier principles."""
        erased = not await self._log.existing([case.completion.id])
        if judgement.outcome == "failed" or erased:
            return None
        for feedback in case.replaced:
            self._on_feedback(await self._log.undo_feedback(feedback.id))
        if judgement.outcome not in ("reply", "revision"):
            return None
        # A revision that isn't preferred is only a worse reply, so it is logged to be one.
        says = (
            {"correction": judgement.revision, "comment": judgement.critique}
            if judgement.outcome == "revision"
            else {"preferred_over": self._logged(case.completion, plan.model, judgement.revision or "")}
        )
        draft = FeedbackDraft(
            completion_id=case.completion.id,
            target="completion_id",
            source="judge",
            rater=RATER,
            tags=(TAG + plan.principles.digest,),
            given_with=asker.identity.key,
            **says,
        )
        addition = await self._log.add_feedback(draft)
        self._on_feedback(addition.feedback)
        return addition.feedback

    def _logged(self, completion: Completion, model: str, revision: str) -> str:
        """Log a revision beside the reply, as of the same caller: erasing the caller erases it. Return its ID."""
        request = {"model": model, "messages": completion.messages}
        message = {"role": "assistant", "content": revision}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        answer = {"object": "chat.completion", "model": model, "choices": [choice]}
        record = Completion(
            completion_id(),
            RequestFacts(time.time(), "chat", model, completion.asked.caller, SESSION, sub_agent=True),
            Answerer(self._upstream, model, upstream_table=self._table_of(model)),
            CompletionEnd("complete", 0.0, HTTPStatus.OK),
            wire=Wire(orjson.dumps(request), (orjson.dumps(answer),), "application/json"),
        )
        self._log.capture(record)
        return record.id
