"""Is it sound? Its distance from the bare model, what it still reads and knows, and what is wrong with its replies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from burnish.adapters.gate.check import Check, Limits
from burnish.adapters.gate.evidence import Evidence, Known, Pair, SampledReply
from burnish.adapters.gate.intervals import allowance, forgetting_by_chance
from burnish.adapters.replies import near_empty, on_topic, repetitive, topics

Fault = Callable[[SampledReply, Limits], bool]

TOOL_CALLS = "tool_calls"
# So many lost facts are named.
SHOWN_FACTS = 3


def soundness(evidence: Evidence, pairs: Sequence[Pair], limits: Limits) -> list[Check]:
    """Return every check of soundness."""
    shares = [_share(name, pairs, limits) for name in FAULTS if name != TOOL_CALLS]
    return [
        _kl(evidence, pairs, limits),
        _weights(evidence, limits),
        *shares,
        *_tool_calls(pairs, limits),
        _general(evidence, limits),
        _facts(evidence.known, limits),
    ]


def _in_text(fault: Callable[[str], bool]) -> Fault:
    """A tool call has no text that could have the fault."""
    return lambda reply, _: not reply.called and fault(reply.text)


def _cut(reply: SampledReply, _: Limits) -> bool:
    return not reply.called and not reply.finished


def _off_topic(reply: SampledReply, limits: Limits) -> bool:
    """No word of the question comes back, and the bare model doesn't see what it would have to do with it either."""
    stems = _topics(reply)
    related = reply.related is not None and reply.related > limits.min_related
    return bool(stems) and not related and not on_topic(reply.text, stems)


def _topics(reply: SampledReply) -> frozenset[str]:
    """Return what a reply should be about; nothing with tools at hand, where the last question says little of that."""
    return frozenset() if reply.tools else topics(reply.prompt)


FAULTS: Mapping[str, tuple[str, Fault]] = MappingProxyType(
    {
        "near_empty": ("near-empty replies", _in_text(near_empty)),
        "repetitive": ("repetitive replies", _in_text(repetitive)),
        "cut": ("replies cut by the length limit", _cut),
        "off_topic": ("replies that have nothing to do with the question", _off_topic),
        TOOL_CALLS: ("broken or cut tool calls", lambda reply, _: reply.call_broken),
    }
)
"""What can be wrong with a reply: what such replies are called, and how one is told."""


def _kl(evidence: Evidence, pairs: Sequence[Pair], limits: Limits) -> Check:
    value, limit = evidence.kl_per_token, limits.max_kl_per_token
    if value is None or not pairs:
        missing = "no reply could be scored" if pairs else "no replies were sampled"
        text = f"its distance from the bare model could not be measured: {missing}"
        return Check(name="kl", kind="sound", limit=limit, text=text)
    passed = value <= limit
    verb = "moved" if passed else "moved too far"
    text = f"{verb} from the bare model: KL {value:.2f} nats per token, limit {limit:.2f}"
    return Check(name="kl", kind="sound", passed=passed, value=value, limit=limit, text=text)


def _weights(evidence: Evidence, limits: Limits) -> Check:
    """Bound how far the weights have moved: learning is a small move in a telling direction, noise a large one."""
    value, limit = evidence.weight_change, limits.max_weight_change
    passed = value <= limit
    text = (
        f"changed the weights {'' if passed else 'too much: '}by {value:.2%} of their size, limit {limit:.0%}"
    )
    return Check(name="weights", kind="sound", passed=passed, value=value, limit=limit, text=text)


def _share(name: str, pairs: Sequence[Pair], limits: Limits) -> Check:
    """Compare how often a fault occurs: the candidate's share may exceed the incumbent's by ``allowance``."""
    if len(pairs) < limits.min_sampled:
        text = f"too few replies were sampled to compare: {len(pairs)}, needed {limits.min_sampled}"
        return Check(name=name, kind="sound", text=text)
    looked = [pair for pair in pairs if _topics(pair[0])] if name == "off_topic" else pairs
    if not looked:
        text = f"{FAULTS[name][0]}: no sampled question has a word to look for"
        return Check(name=name, kind="sound", passed=True, text=text)
    return _compared(name, looked, limits)


def _compared(name: str, looked: Sequence[Pair], limits: Limits, among: str = "") -> Check:
    words, fault = FAULTS[name]
    new, old = (sum(fault(pair[side], limits) for pair in looked) for side in (0, 1))
    count = len(looked)
    limit = old / count + allowance(new, old, count, limits)
    passed = new / count <= limit
    text = f"{words}: {new} of {count}{among}, before {old}{'' if passed else ', too many more'}"
    return Check(name=name, kind="sound", passed=passed, value=new / count, limit=min(limit, 1.0), text=text)


def _tool_calls(pairs: Sequence[Pair], limits: Limits) -> list[Check]:
    """Compare how often a call is broken, on the prompts that came with tools; without one there is nothing to say.

    A few can show that calls are broken, but not that they are sound; that is no reason to hold a version back.
    """
    offered = [pair for pair in pairs if pair[0].tools]
    if not offered:
        return []
    check = _compared(TOOL_CALLS, offered, limits, " prompts with tools")
    if check.passed and len(offered) < limits.min_sampled:
        text = f"{check.text}; too few to say that calls are sound"
        return [Check(name=TOOL_CALLS, kind="reported", value=check.value, text=text)]
    return [check]


def _general(evidence: Evidence, limits: Limits) -> Check:
    value, limit = evidence.general_loss - evidence.general_loss_reference, limits.max_general_loss
    passed = value <= limit
    verb = "still reads" if passed else "no longer reads"
    text = (
        f"{verb} ordinary text as the bare model does: loss {value:+.3f} nats per token, limit {limit:+.2f}"
    )
    return Check(name="general_text", kind="sound", passed=passed, value=value, limit=limit, text=text)


def _facts(known: Sequence[Known], limits: Limits) -> Check:
    """Compare what both know: the share may fall by ``max_forgotten``, and by what chance explains."""
    old = sum(each.incumbent for each in known)
    if old < limits.min_known:
        text = f"simple facts: the version before knows {old} of {len(known)}, so there is nothing to compare"
        return Check(name="facts", kind="reported", text=text)
    lost = [each.question for each in known if each.incumbent and not each.candidate]
    gained = sum(each.candidate and not each.incumbent for each in known)
    fall = (len(lost) - gained) / len(known)
    passed = fall <= limits.max_forgotten or forgetting_by_chance(len(lost), gained) > limits.forgetting_error
    text = (
        f"{'still knows' if passed else 'has forgotten'} simple facts: {old - len(lost) + gained} of {len(known)} "
        f"right, before {old}{_named(lost)}"
    )
    return Check(
        name="facts", kind="sound", passed=passed, value=-fall, limit=-limits.max_forgotten, text=text
    )


def _named(lost: Sequence[str]) -> str:
    if not lost:
        return ""
    more = f" and {len(lost) - SHOWN_FACTS} more" if len(lost) > SHOWN_FACTS else ""
    return f"; no longer: {' '.join(lost[:SHOWN_FACTS])}{more}"
