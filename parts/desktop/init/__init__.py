"""What ``burnish init`` changes on a machine: planned as a whole, carried out as a whole, and taken back."""

from burnish.parts.desktop.init.answers import SetupAnswers
from burnish.parts.desktop.init.carrying_out import Background, carry_out, undo
from burnish.parts.desktop.init.plan import SetupPlan, make_plan
from burnish.parts.desktop.init.purge import purge
from burnish.parts.desktop.init.record import SetupRecord

__all__ = [
    "Background",
    "SetupAnswers",
    "SetupPlan",
    "SetupRecord",
    "carry_out",
    "make_plan",
    "purge",
    "undo",
]
