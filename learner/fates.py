"""What training runs did with feedback, as their versions tell it. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from burnish.adapters.manifest import AdapterVersion, Manifest
from burnish.proxy.feedback.shapes import Fates
from burnish.proxy.records import Fate, Feedback


def fates_in(versions: Iterable[AdapterVersion]) -> Fates:
    """Return what the latest version, of those that weren't rejected, did with feedback. ``versions``: in order."""
    taught: dict[str, Manifest] = {}
    for version in versions:
        if version.state != "rejected":
            manifest = version.manifest
            taught |= dict.fromkeys((*manifest.feedback_ids, *manifest.held_out), manifest)

    def fate(answer: str, feedback: Feedback) -> Fate | None:
        if (manifest := taught.get(feedback.id)) is None:
            return None
        name = f"v{manifest.version}"
        if feedback.id in manifest.held_out:
            return Fate(manifest.version, f"held out: {name} was tested on it", held_out=True)
        why = manifest.unlearnt.get(answer)
        return Fate(manifest.version, why and f"{name} left it out: {why}")

    return fate
