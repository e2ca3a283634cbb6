"""Critique, revise, prefer: what a judge makes of one reply."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from burnish.parts.judging import answers, prompts
from burnish.parts.judging.answers import Pick
from burnish.parts.judging.asking import BadAnswer, Fault, Judge
from burnish.parts.judging.principles import Principles
from burnish.proxy.messages import text_of
from burnish.proxy.records import Completion

Outcome = Literal["revision", "reply", "tie", "faultless", "unchanged", "failed"]
"""revision, reply: what the judge prefers in both orders; tie: it prefers neither; faultless: nothing to criticise;
unchanged: its revision is the reply; failed: it gave no usable answer."""

CRITIQUE_TOKENS = 160
PICK_TOKENS = 32
REVISION_TOKENS = 256
"""And as many more as the reply may have at two characters a token: a better reply may be longer."""
MAX_COMMENT = 600
"""Characters of a critique that become a comment."""


@dataclass(frozen=True, slots=True)
class ReplyJudgement:
    completion_id: str
    outcome: Outcome
    fault: Fault | None = None
    """Why the judge failed."""
    details: str | None = None
    """The same in words."""
    critique: str | None = None
    revision: str | None = None
    reply_characters: int = 0
    picks: tuple[Pick, ...] = ()
    """What it picked: first with the reply as A, then with the revision as A."""
    feedback_id: str | None = None
    """Of the feedback that it became."""


async def judge(judge: Judge, principles: Principles, completion: Completion) -> ReplyJudgement:
    """Have a reply judged; a judge that fails is part of the result."""
    messages, reply = completion.messages, text_of(completion.reply or {}).strip()
    facts: dict[str, Any] = {"completion_id": completion.id, "reply_characters": len(reply)}
    try:
        criticised = await judge.ask(prompts.critique(principles, messages, reply), CRITIQUE_TOKENS)
        critique = facts["critique"] = _shortened(criticised.text)
        if answers.finds_nothing(criticised.text):
            return ReplyJudgement(outcome="faultless", **facts)
        revised = await judge.ask(
            prompts.revise(principles, messages, reply, critique), REVISION_TOKENS + len(reply) // 2
        )
        if revised.cut:
            raise BadAnswer("cut")
        revision = facts["revision"] = answers.revision(revised.text)
        if not revision:
            raise BadAnswer("empty")
        if revision.split() == reply.split():
            return ReplyJudgement(outcome="unchanged", **facts)
        first = await _pick(judge, prompts.prefer(principles, messages, reply, revision))
        second = await _pick(judge, prompts.prefer(principles, messages, revision, reply))
    except BadAnswer as error:
        return ReplyJudgement(outcome="failed", fault=error.fault, details=str(error), **facts)
    return ReplyJudgement(outcome=preferred(first, second), picks=(first, second), **facts)


def preferred(first: Pick, second: Pick) -> Outcome:
    """Return what is preferred in both orders. The reply is A in the first, and B in the second.

    Judges favour a place (Zheng et al. 2023, arXiv:2306.05685), so one order proves nothing.
    """
    outcomes: dict[tuple[Pick, Pick], Outcome] = {("A", "B"): "reply", ("B", "A"): "revision"}
    return outcomes.get((first, second), "tie")


async def _pick(judge: Judge, prompt: str) -> Pick:
    """Raises BadAnswer."""
    answer = await judge.ask(prompt, PICK_TOKENS)
    if (pick := answers.pick(answer.text)) is None:
        raise BadAnswer("nonsense", answer.text[:MAX_COMMENT])
    return pick


def _shortened(critique: str) -> str:
    text = " ".join(critique.split())
    return text if len(text) <= MAX_COMMENT else text[: MAX_COMMENT - 1].rstrip() + "…"
