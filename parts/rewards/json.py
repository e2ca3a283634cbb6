"""What the API tells of a reward model. Pure."""

from __future__ import annotations

from typing import Any

from burnish.gate.preference import MIN_RATED
from burnish.parts.rewards.shelf import Kept

TRAIN = "`burnish reward train`"
UNKNOWN = dict.fromkeys(("form", "made_at", "objective", "learnt_from", "forms"))


def model_json(kept: Kept) -> dict[str, Any]:
    """Return where a model comes from, and how each form ordered unseen ratings."""
    manifest = kept.manifest
    return {
        "form": manifest.chosen,
        "made_at": manifest.made_at,
        "objective": manifest.objective,
        "learnt_from": manifest.learnt_from.model_dump(),
        "forms": [
            {
                "name": each.name,
                "order": each.share,
                "lower": each.order and max(0.0, each.order.lower),
                "upper": each.order and each.order.upper,
                "believed": bool(each.order and each.order.believed),
                "chosen": each.name == manifest.chosen,
                "reason": each.reason,
            }
            for each in manifest.tried
        ],
    }


def why_off(kept: Kept | None) -> str | None:
    """Return why no model is on, and what to do; None if one is."""
    if kept is None:
        rate = f"rate {MIN_RATED} answers or more, good ones and bad ones"
        return f"there is no reward model yet: {rate}, then run {TRAIN}"
    if kept.on_since:
        return None
    if kept.manifest.order.believed:
        return "it was turned off: `burnish reward on` turns it on"
    return f"{doubt(kept)}: rate more answers, then run {TRAIN}"


def doubt(kept: Kept) -> str:
    found = kept.manifest.order
    return (
        f"it puts {found.share:.0%} of good and bad answers that it hadn't seen in the right order (chance is 50%), "
        f"and by so few ratings that may be {found.lower:.0%}"
    )
