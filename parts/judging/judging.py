"""Has a judge look at logged answers, and stores what it prefers as feedback."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

from burnish.config.model_names import DEFAULT_MODEL
from burnish.parts.core import Core
from burnish.parts.judging import report
from burnish.parts.judging.asking import OF_THE_UPSTREAM, Judge
from burnish.parts.judging.judgement import ReplyJudgement, judge
from burnish.parts.judging.principles import Principles
from burnish.parts.judging.report import JudgeReport
from burnish.proxy.feedback.usability import obstacle_of
from burnish.proxy.http.errors import Conflict, NotFound
from burnish.proxy.log.faults import Rules
from burnish.proxy.log.listings import Filters
from burnish.proxy.log.ratings import PEOPLE
from burnish.proxy.log.side_requests import is_side_request
from burnish.proxy.messages import text_of
from burnish.proxy.records import Answerer, Completion, Feedback, FeedbackDraft
from burnish.proxy.relay.inside import Asker, log_answer

LOOKED_AT = 1_000
"""Latest answers among which it chooses."""
PAGE = 100
MOST_IN_A_ROW = 3
"""Failures of the judge's upstream after which it isn't asked any more."""
RATER = "judge"
SESSION = "judge"
"""Of the revisions in the log."""
TAG = "principles:"
"""The beginning of the tag on a judge's feedback; the digest of the principles follows."""
MAX_REPLY = 8_000
"""Characters. Two such replies and the conversation are about 6,000 tokens."""

BY_A_PERSON = "a person said something of them"
ALREADY_JUDGED = "judged by these principles before"
SIDE = "an agent asked for itself"
CALLS = "the model called tools"
LONG = f"longer than {MAX_REPLY:,} characters"


@dataclass(frozen=True, slots=True)
class JudgePlan:
    principles: Principles
    model: str
    completions: tuple[Completion, ...]
    left_out: dict[str, int]
    """Answers that were looked at and aren't judged, by reason."""


class Judging:
    """The judge of one log. It judges for one caller at a time."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._log = core.log
        self._data_dir = core.config.data_dir
        self._busy = False

    async def plan(self, principles: Principles, count: int, model: str | None) -> JudgePlan:
        """Choose the latest answers that no person said anything of. Raises Conflict, Unavailable."""
        if model is None:
            # Not the live version: it learns from the judge.
            learning = self._core.learning
            model = f"{learning.base[0]}@base" if learning else DEFAULT_MODEL
        self._check_teaches(model)
        undecided = report.undecided(report.kept(self._data_dir), principles.digest, model)
        tag, completions, left_out = TAG + principles.digest, list[Completion](), Counter[str]()
        async for completion in self._latest():
            if reason := why_not(completion, self._core.rules, tag, undecided):
                left_out[reason] += 1
            else:
                completions.append(completion)
            if len(completions) == count:
                break
        return JudgePlan(principles, model, tuple(completions), dict(left_out))

    async def judged(self, plan: JudgePlan, asker: Asker) -> AsyncIterator[ReplyJudgement | JudgeReport]:
        """Have the planned answers judged one after the other; the report comes last. Raises Conflict, Unavailable.

        The report is kept also if nobody waits for the end.
        """
        began, judgements, reason = time.time(), list[ReplyJudgement](), "it was stopped"

        def reported() -> JudgeReport:
            end_reason = reason if len(judgements) < len(plan.completions) else None
            return report.report(
                judgements, plan.principles, model=plan.model, created_at=began, end_reason=end_reason
            )

        with self._alone():
            try:
                judge_model, in_a_row = Judge(self._core.relay, plan.model, asker), 0
                for completion in plan.completions:
                    judgement = await judge(judge_model, plan.principles, completion)
                    feedback = await self._store(plan, completion, judgement, asker)
                    judgements.append(replace(judgement, feedback_id=feedback.id if feedback else None))
                    yield judgements[-1]
                    in_a_row = in_a_row + 1 if judgement.fault in OF_THE_UPSTREAM else 0
                    if in_a_row == MOST_IN_A_ROW:
                        reason = f"the judge failed {MOST_IN_A_ROW} times in a row"
                        break
            finally:
                if judgements:
                    report.keep(self._data_dir, reported())
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
        if table is not None and table not in self._core.config.teachers:
            raise Conflict(
                f"[upstreams.{table}] answers for {model}, and what it says isn't learnt. To let it judge, if its "
                f"terms allow that, set teaches = true in [upstreams.{table}]",
                code="not_teaching",
            )

    def _table_of(self, model: str) -> str | None:
        tables = self._core.config.upstreams.items()
        return next((name for name, upstream in tables if upstream.claims(model)), None)

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
        self, plan: JudgePlan, completion: Completion, judgement: ReplyJudgement, asker: Asker
    ) -> Feedback | None:
        """Store a preference, and take back what the judge said by earlier principles."""
        erased = not await self._log.existing([completion.id])
        if judgement.outcome == "failed" or erased:
            return None
        for rating in completion.feedback:
            if _by_judge(rating.feedback) and rating.feedback.undone_at is None:
                self._core.on_feedback(await self._log.undo_feedback(rating.feedback.id))
        if judgement.outcome not in ("reply", "revision"):
            return None
        # A revision that isn't preferred is only a worse reply, so it is logged to be one.
        says = (
            {"correction": judgement.revision, "comment": judgement.critique}
            if judgement.outcome == "revision"
            else {"preferred_over": self._log_revision(completion, plan.model, judgement.revision or "")}
        )
        draft = FeedbackDraft(
            completion_id=completion.id,
            target="completion_id",
            source="judge",
            rater=RATER,
            tags=(TAG + plan.principles.digest,),
            given_with=asker.identity.key,
            **says,
        )
        addition = await self._log.add_feedback(draft)
        self._core.on_feedback(addition.feedback)
        return addition.feedback

    def _log_revision(self, completion: Completion, model: str, revision: str) -> str:
        """Log a revision beside the reply, as of the same caller: erasing the caller erases it. Return its ID."""
        return log_answer(
            self._log,
            Answerer(self._core.upstream.name, model, upstream_table=self._table_of(model)),
            completion.messages,
            revision,
            caller=completion.asked.caller,
            asked_at=time.time(),
            session=SESSION,
        )


def why_not(completion: Completion, rules: Rules, tag: str, undecided: Collection[str]) -> str | None:
    """Return why a judge isn't asked about an answer. ``completion`` was read in full."""
    feedback = [rating.feedback for rating in completion.feedback]
    if any(statement.undone_at is None and statement.draft.source in PEOPLE for statement in feedback):
        return BY_A_PERSON
    # Also if it was taken back: then a person disagreed.
    if completion.id in undecided or any(
        _by_judge(statement) and tag in statement.draft.tags for statement in feedback
    ):
        return ALREADY_JUDGED
    if is_side_request(completion):
        return SIDE
    if obstacle := obstacle_of(completion, rules):
        return obstacle
    if (completion.reply or {}).get("tool_calls"):
        return CALLS
    return LONG if len(text_of(completion.reply or {})) > MAX_REPLY else None


def _by_judge(feedback: Feedback) -> bool:
    """Whether burnish's own judge said it, not a program that calls itself one."""
    return feedback.draft.source == "judge" and any(tag.startswith(TAG) for tag in feedback.draft.tags)
