"""What the API tells of a reward model. Pure."""

from __future__ import annotations

from typing import Any

from burnish.gate.preference import MIN_RATED
from burnish.parts.rewards.store import StoredModel

TRAIN = "`burnish reward train`"
UNKNOWN = dict.fromkeys(("form", "made_at", "objective", "learnt_from", "forms"))


def model_json(model: StoredModel) -> dict[str, Any]:
    """Return where a model comes from, and how each form ordered unseen ratings."""
    manifest = model.manifest
    return {
        "form": manifest.chosen,
        "made_at": manifest.made_at,
        "objective": manifest.objective,
        "learnt_from": manifest.learnt_from.model_dump(),
        "forms": [
            {
                "name": form.name,
                "order": form.share,
                "lower": form.order and max(0.0, form.order.lower),
                "upper": form.order and form.order.upper,
                "believed": bool(form.order and form.order.believed),
                "chosen": form.name == manifest.chosen,
                "reason": form.reason,
            }
            for form in manifest.tried
        ],
    }


def why_off(model: StoredModel | None) -> str | None:
    """Return why no model is on, and what to do; None if one is."""
    if model is None:
        rate = f"rate {MIN_RATED} answers or more, good ones and bad ones"
        return f"there is no reward model yet: {rate}, then run {TRAIN}"
    if model.on_since:
        return None
    if model.manifest.order.believed:
        return "it was turned off: `burnish reward on` turns it on"
    return f"{doubt(model)}: rate more answers, then run {TRAIN}"


def doubt(model: StoredModel) -> str:
    order = model.manifest.order
    return (
        f"it puts {order.share:.0%} of good and bad answers that it hadn't seen in the right order (chance is 50%), "
        f"and by so few ratings that may be {order.lower:.0%}"
    )
