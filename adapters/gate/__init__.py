"""May a candidate go live? A pure decision on evidence that others gathered.

Two things are asked. *Is it better?* (``proofs``) shown by held-out ratings, by what the engine answers with it, or by
what users said in words: one proof will do, and none may speak against it. *Is it sound?* (``soundness``) shown by its
distance from the bare model, by ordinary text, by simple facts, and by the share of replies that are empty, repetitive,
cut or off the topic, and of tool calls that are broken. What else changed is told and decides nothing (``reports``).

A check fails, holds, or has too little to go by: one failure rejects, and too little leaves it to the user.
"""

from burnish.adapters.gate.check import Check, Limits
from burnish.adapters.gate.evidence import Evidence, HeldOutReply, Known, SampledReply, ToldApart
from burnish.adapters.gate.examples import Example
from burnish.adapters.gate.intervals import allowance, forgetting_by_chance, preference_margin
from burnish.adapters.gate.verdict import Outcome, Verdict, judge

__all__ = [
    "Check",
    "Evidence",
    "Example",
    "HeldOutReply",
    "Known",
    "Limits",
    "Outcome",
    "SampledReply",
    "ToldApart",
    "Verdict",
    "allowance",
    "forgetting_by_chance",
    "judge",
    "preference_margin",
]
