"""The gate: may a candidate go live? A pure decision on evidence that others gathered.

*Is it better?* (``proofs``): one proof is enough, by held-out ratings, by the preference model or by the users'
comments, and none may point the other way. *Is it sound?* (``soundness``): it must stay near the base model, still read
ordinary text, know simple facts, contradict false claims, and answer at length if asked to. Its replies may not be
empty, repetitive, cut or off topic more often than before, nor its tool calls broken. ``reports`` are figures that
decide nothing.

A check passes, fails, or has too little evidence: one failure rejects, and too little evidence leaves it to the user.
"""

from burnish.gate.check import Check, GateLimits
from burnish.gate.evidence import CommentFit, Evidence, FactCheck, HeldOutReply, LongAnswer, SampledReply
from burnish.gate.intervals import allowance, forgetting_by_chance, preference_margin
from burnish.gate.verdict import ExamplePair, Outcome, Verdict, in_words, judge

__all__ = [
    "Check",
    "CommentFit",
    "Evidence",
    "ExamplePair",
    "FactCheck",
    "GateLimits",
    "HeldOutReply",
    "LongAnswer",
    "Outcome",
    "SampledReply",
    "Verdict",
    "allowance",
    "forgetting_by_chance",
    "in_words",
    "judge",
    "preference_margin",
]
