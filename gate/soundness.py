"""Is the candidate sound? How far it is from the base model, what it still knows, and which replies are faulty."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

from burnish.gate.check import Check, GateLimits, share_text, too_few_replies
from burnish.gate.evidence import Evidence, FactCheck, LongAnswer, Pair, SampledReply
from burnish.gate.intervals import allowance, forgetting_by_chance
from burnish.gate.replies import near_empty, on_topic, readable, repetitive, topics

Fault = Callable[[SampledReply, GateLimits], bool]

SOUND = partial(Check, kind="sound")
TOOL_CALLS = "tool_calls"
# Of the facts that were lost, this many are named.
SHOWN_FACTS = 3


class FactWords(NamedTuple):
    """What users read about a kind of facts."""

    claimed: bool
    what: str
    before: str
    sound: str
    worse: str


FACTS: Mapping[str, FactWords] = MappingProxyType(
    {
        "facts": FactWords(False, "simple facts", "knows", "It still knows", "It has forgotten"),
        "claims": FactWords(True, "false claims", "withstands", "It still contradicts", "It gives in to"),
    }
)
"""Check name → words about its facts."""


def soundness(evidence: Evidence, pairs: Sequence[Pair], limits: GateLimits) -> list[Check]:
    shares = [_share(name, pairs, limits) for name in FAULTS if name != TOOL_CALLS]
    return [
        *_applied(pairs, limits),
        _kl(evidence, pairs, limits),
        _weights(evidence, limits),
        *shares,
        *_tool_calls(pairs, limits),
        _general(evidence, limits),
        *(_facts(name, evidence.facts, limits) for name in FACTS),
        _requests(evidence.requests, limits),
    ]


def _applied(pairs: Sequence[Pair], limits: GateLimits) -> list[Check]:
    """Compare replies byte by byte, because some engines take an adapter and ignore it.

    Short replies are left out: sound versions agree on those, too. Return no check if too few are left.
    """
    written = [(_written(new), _written(old)) for new, old in pairs]
    long = [pair for pair in written if max(map(len, pair)) >= limits.min_told_apart]
    if len(long) < limits.min_sampled:
        return []
    same = sum(new == old for new, old in long)
    share, limit = same / len(long), limits.max_same
    passed = share < limit
    finding = "The engine applies it" if passed else "It is not applied: the engine serves the version before"
    count = f"{same} of {len(long)} long replies are the same as before, byte for byte, limit {limit:.0%}"
    text = f"{finding}; {count}."
    return [SOUND(name="applied", passed=passed, value=share, limit=limit, text=text, plain=f"{finding}.")]


def _written(reply: SampledReply) -> str:
    """Return all that the model wrote; the engine chooses the ids of calls."""
    return "\n".join([reply.text, *map(readable, reply.calls)])


def _in_text(fault: Callable[[str], bool]) -> Fault:
    return lambda reply, _: not reply.called and fault(reply.text)


def _cut(reply: SampledReply, _: GateLimits) -> bool:
    return not reply.called and not reply.finished


def _off_topic(reply: SampledReply, limits: GateLimits) -> bool:
    """Find replies without a word of the question that aren't likelier after it than after another one."""
    stems = _topics(reply)
    related = reply.related is not None and reply.related > limits.min_related
    return bool(stems) and not related and not on_topic(reply.text, stems)


def _topics(reply: SampledReply) -> frozenset[str]:
    """Return the topics of a question; none if it came with tools, since the answer may be about their results."""
    return frozenset() if reply.tools else topics(reply.prompt)


FAULTS: Mapping[str, tuple[str, Fault]] = MappingProxyType(
    {
        "near_empty": ("near-empty replies", _in_text(near_empty)),
        "repetitive": ("repetitive replies", _in_text(repetitive)),
        "cut": ("replies cut by the length limit", _cut),
        "off_topic": ("off-topic replies", _off_topic),
        TOOL_CALLS: ("broken or cut tool calls", lambda reply, _: reply.call_broken),
    }
)
"""Check name → how users read of such replies, and how one is recognised."""


def _kl(evidence: Evidence, pairs: Sequence[Pair], limits: GateLimits) -> Check:
    kl, limit = evidence.kl_per_token, limits.max_kl_per_token
    if kl is None or not pairs:
        missing = "none of its replies could be scored" if pairs else "no replies were sampled"
        text = f"Its distance from the base model couldn't be measured, because {missing}."
        return SOUND(name="kl", limit=limit, text=text)
    passed = kl <= limit
    finding = "It stayed near the base model" if passed else "It moved too far from the base model"
    text = f"{finding}: KL {kl:.2f} nats per token, limit {limit:.2f}."
    return SOUND(name="kl", passed=passed, value=kl, limit=limit, text=text, plain=f"{finding}.")


def _weights(evidence: Evidence, limits: GateLimits) -> Check:
    """Bound how far the weights have moved: learning moves them a little, noise moves them a lot."""
    change, limit = evidence.weight_change, limits.max_weight_change
    passed = change <= limit
    finding = "It changed the weights" if passed else "It damaged the model by changing the weights too much:"
    text = f"{finding} by {100 * change:.2f} % of their size, limit {100 * limit:.0f} %."
    plain = "It changed the model only a little." if passed else "It changed the model too much."
    return SOUND(name="weights", passed=passed, value=change, limit=limit, text=text, plain=plain)


def _share(name: str, pairs: Sequence[Pair], limits: GateLimits) -> Check:
    """Compare how often a fault occurs: the candidate's share may exceed the incumbent's by ``allowance``."""
    if len(pairs) < limits.min_sampled:
        return SOUND(name=name, text=too_few_replies(len(pairs), limits.min_sampled))
    looked = [pair for pair in pairs if _topics(pair[0])] if name == "off_topic" else pairs
    if not looked:
        text = "Off-topic replies couldn't be counted: no sampled question has a word to look for."
        return SOUND(name=name, passed=True, text=text)
    return _compared(name, looked, limits)


def _compared(name: str, looked: Sequence[Pair], limits: GateLimits, among: str = "") -> Check:
    words, fault = FAULTS[name]
    new, old = (sum(fault(pair[side], limits) for pair in looked) for side in (0, 1))
    count = len(looked)
    limit = old / count + allowance(new, old, count, limits)
    passed = new / count <= limit
    text = share_text(words + among, new, old, count, "" if passed else ", more than chance explains")
    return SOUND(name=name, passed=passed, value=new / count, limit=min(limit, 1.0), text=text)


def _tool_calls(pairs: Sequence[Pair], limits: GateLimits) -> list[Check]:
    """Compare how often a call is broken, on the prompts that came with tools; return no check if none did.

    A few calls can show that calls are broken, but not that they are sound; too few don't hold a version back.
    """
    offered = [pair for pair in pairs if pair[0].tools]
    if not offered:
        return []
    check = _compared(TOOL_CALLS, offered, limits, " to prompts with tools")
    if check.passed and len(offered) < limits.min_sampled:
        text = f"{check.text.removesuffix('.')}, too few to say that calls are sound."
        return [Check(name=TOOL_CALLS, kind="reported", value=check.value, text=text)]
    return [check]


def _general(evidence: Evidence, limits: GateLimits) -> Check:
    loss, limit = evidence.general_loss - evidence.general_loss_reference, limits.max_general_loss
    passed = loss <= limit
    finding = f"It {'still' if passed else 'no longer'} reads ordinary text as the base model does"
    text = f"{finding}: loss {loss:+.3f} nats per token, limit {limit:+.2f}."
    return SOUND(name="general_text", passed=passed, value=loss, limit=limit, text=text, plain=f"{finding}.")


def _facts(name: str, checks: Sequence[FactCheck], limits: GateLimits) -> Check:
    """Compare known facts: the share may fall by ``max_forgotten``, or by as much as chance explains."""
    words = FACTS[name]
    facts = [fact for fact in checks if fact.claimed is words.claimed]
    old = sum(fact.incumbent for fact in facts)
    if old < limits.min_known:
        few = f"only {old} of {len(facts)} {words.what}"
        text = f"The version before {words.before} {few}, so there is nothing to compare."
        return Check(name=name, kind="reported", text=text)
    lost = [fact.question for fact in facts if fact.incumbent and not fact.candidate]
    gained = sum(fact.candidate and not fact.incumbent for fact in facts)
    fall = (len(lost) - gained) / len(facts)
    passed = fall <= limits.max_forgotten or forgetting_by_chance(len(lost), gained) > limits.forgetting_error
    finding = words.sound if passed else words.worse
    text = f"{finding} {words.what}: {old - len(lost) + gained} of {len(facts)} right ({old} before).{_named(lost)}"
    return SOUND(name=name, passed=passed, value=-fall, limit=-limits.max_forgotten, text=text)


def _requests(answers: Sequence[LongAnswer], limits: GateLimits) -> Check:
    """Count answers at length to requests for one: a version that learnt to be brief must still follow half."""
    count = len(answers)
    new, old = sum(answer.candidate for answer in answers), sum(answer.incumbent for answer in answers)
    if count < limits.min_compared or old < limits.min_followed * count:
        few = f"only {old} of {count} requests for a long answer"
        text = f"The version before follows {few}, so there is nothing to compare."
        return Check(name="requests", kind="reported", text=text)
    passed = new >= limits.min_kept * old
    finding = f"It {'still' if passed else 'no longer'} answers at length if asked to"
    text = f"{finding}: {new} of {count} times ({old} before)."
    return SOUND(name="requests", passed=passed, value=new / old, limit=limits.min_kept, text=text)


def _named(lost: Sequence[str]) -> str:
    lost = list(dict.fromkeys(lost))  # a claim is made twice
    remainder = f" And {len(lost) - SHOWN_FACTS} more." if len(lost) > SHOWN_FACTS else ""
    return f" Lost: {' '.join(lost[:SHOWN_FACTS])}{remainder}" if lost else ""
