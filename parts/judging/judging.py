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
from burnish.parts.judging.asking import OF_THE_UPSTREAM, Asker, Judge
from burnish.parts.judging.choosing import RATER, TAG, Case, case, why_not
from burnish.parts.judging.judgement import Judgement, judge
from burnish.parts.judging.principles import Principles
from burnish.parts.judging.report import Report, report
from burnish.proxy.http.errors import Conflict, NotFound
from burnish.proxy.ids import completion_id
from burnish.proxy.log import Log
from burnish.proxy.log.faults import Rules
from burnish.proxy.log.listings import Filters
from burnish.proxy.records import Asked, Completion, Ended, Feedback, FeedbackDraft, Served, Wire

LOOKED_AT = 1_000
"""Latest answers among which it chooses."""
PAGE = 100
MOST_IN_A_ROW = 3
"""Failures of the judge's upstream after which it isn't asked any more."""
SESSION = "judge"
"""Of the revisions in the log."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What would be judged."""

    principles: Principles
    model: str
    cases: tuple[Case, ...]
    left_out: dict[str, int]
    """Answers that were looked at and aren't judged, by reason."""


class Done(NamedTuple):
    """One judgement, and the feedback that it became."""

    judgement: Judgement
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

    async def plan(self, principles: Principles, count: int, model: str | None) -> Plan:
        """Choose answers for a judge. Raises Conflict, Unavailable."""
        model = model or self._base_model
        self._check_teaches(model)
        undecided = reports.undecided(reports.kept(self._config.data_dir), principles.digest, model)
        tag, cases, left_out = TAG + principles.digest, list[Case](), Counter[str]()
        async for each in self._latest():
            if reason := why_not(each, self._rules, tag, undecided):
                left_out[reason] += 1
            else:
                cases.append(case(each))
            if len(cases) == count:
                break
        return Plan(principles, model, tuple(cases), dict(left_out))

    async def judged(self, plan: Plan, asker: Asker) -> AsyncIterator[Done | Report]:
        """Have the planned answers judged one after the other; the report comes last. Raises Conflict, Unavailable.

        The report is kept also if nobody waits for the end.
        """
        began, done, ended = time.time(), list[Done](), "it was stopped"

        def reported() -> Report:
            return report(
                [each.judgement for each in done],
                plan.principles,
                model=plan.model,
                created_at=began,
                stored=sum(each.feedback is not None for each in done),
                ended=ended if len(done) < len(plan.cases) else None,
            )

        with self._alone():
            try:
                asked, in_a_row = Judge(self._relay, plan.model, asker), 0
                for each in plan.cases:
                    found = await judge(
                        asked, plan.principles, each.completion.id, each.completion.messages, each.reply
                    )
                    done.append(Done(found, await self._store(plan, each, found, asker)))
                    yield done[-1]
                    in_a_row = in_a_row + 1 if found.fault in OF_THE_UPSTREAM else 0
                    if in_a_row == MOST_IN_A_ROW:
                        ended = f"the judge failed {MOST_IN_A_ROW} times in a row"
                        break
            finally:
                if done:
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
        return next((name for name, each in self._config.upstreams.items() if each.claims(model)), None)

    async def _latest(self) -> AsyncIterator[Completion]:
        before = None
        for _ in range(0, LOOKED_AT, PAGE):
            page = await self._log.completions(PAGE, before, Filters())
            for each in page:
                with suppress(NotFound):  # erased in this moment
                    yield await self._log.completion(each.id)
            if len(page) < PAGE:
                return
            before = page[-1].id

    async def _store(self, plan: Plan, case: Case, found: Judgement, asker: Asker) -> Feedback | None:
        """Store a preference, and take back what the judge said by earlier principles."""
        erased = not await self._log.existing([case.completion.id])
        if found.outcome == "failed" or erased:
            return None
        for each in case.replaced:
            self._on_feedback(await self._log.undo_feedback(each.id))
        if found.outcome not in ("reply", "revision"):
            return None
        # A revision that isn't preferred is only a worse reply, so it is logged to be one.
        says = (
            {"correction": found.revision, "comment": found.critique}
            if found.outcome == "revision"
            else {"preferred_over": self._logged(case.completion, plan.model, found.revision or "")}
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
        added = await self._log.add_feedback(draft)
        self._on_feedback(added.feedback)
        return added.feedback

    def _logged(self, completion: Completion, model: str, revision: str) -> str:
        """Log a revision beside the reply, as of the same caller: erasing the caller erases it. Return its ID."""
        request = {"model": model, "messages": completion.messages}
        message = {"role": "assistant", "content": revision}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        answer = {"object": "chat.completion", "model": model, "choices": [choice]}
        made = Completion(
            completion_id(),
            Asked(time.time(), "chat", model, completion.asked.caller, SESSION, sub_agent=True),
            Served(self._upstream, model, upstream_table=self._table_of(model)),
            Ended("complete", 0.0, HTTPStatus.OK),
            wire=Wire(orjson.dumps(request), (orjson.dumps(answer),), "application/json"),
        )
        self._log.capture(made)
        return made.id
