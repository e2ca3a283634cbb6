"""What ``burnish init`` changes on a machine: planned as a whole, carried out as a whole, and taken back."""

from burnish.proxy.setup.answers import Answers
from burnish.proxy.setup.carrying_out import Background, carry_out, undo
from burnish.proxy.setup.plan import Plan, make_plan
from burnish.proxy.setup.purge import purge
from burnish.proxy.setup.record import Record

__all__ = ["Answers", "Background", "Plan", "Record", "carry_out", "make_plan", "purge", "undo"]
