"""Versions as the API shows them: in a list, one with all that is known of it, and beside the feedback they learnt."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from burnish.adapters import examples
from burnish.adapters.errors import CorruptAdapter, UnknownVersion
from burnish.adapters.manifest import BASE_VERSION, AdapterVersion, Manifest
from burnish.adapters.registry import Registry, version_label
from burnish.gate import in_words
from burnish.gate.replies import last_question
from burnish.proxy.feedback.shapes import Fates
from burnish.proxy.http.errors import Conflict, NotFound
from burnish.proxy.records import Fate, Feedback
from burnish.training.errors import JobError
from burnish.training.job import JobDirectory, PolicyReply


def summary(version: AdapterVersion) -> dict[str, Any]:
    manifest = version.manifest
    return {
        "version": version.number,
        "name": version.served_name,
        "state": version.state,
        "reason": version.reason,
        "parent": manifest.parent,
        "run_id": manifest.run_id,
        "created_at": manifest.created_at,
        "objective": manifest.objective,
        "ratings": len(manifest.feedback_ids),
        "episodes": manifest.metrics.get("episodes", 0),
        "reward": manifest.metrics.get("reward"),
    }


def details(registry: Registry, number: int, job_of: Callable[[str], JobDirectory]) -> dict[str, Any]:
    """Return a version with its history, verdict and sampled replies; the base model has only a history.

    ``job_of`` returns the job directory of a run, which may be gone. Raises NotFound, Conflict.
    """
    events = registry.events(number)
    history = [event.model_dump(mode="json") for event in events]
    if number == BASE_VERSION:
        state = registry.state(BASE_VERSION)
        return {"version": 0, "name": version_label(0), "state": state, "manifest": None, "events": history}
    try:
        version = registry.get(number)
    except UnknownVersion as error:
        raise NotFound(str(error), code="unknown_version") from error
    except CorruptAdapter as error:
        raise Conflict(str(error), code="corrupt_version") from error
    verdicts = [event.details["verdict"] for event in events if "verdict" in event.details]
    return summary(version) | {
        "manifest": version.manifest.model_dump(mode="json", exclude={"proof"}),
        "events": history,
        "verdict": in_words({**verdicts[-1], "examples": examples.of(registry.root, number)})
        if verdicts
        else None,
        "samples": _side_by_side(job_of(version.manifest.run_id)),
    }


def _side_by_side(job: JobDirectory) -> list[dict[str, Any]]:
    """Pair the replies of the version and of the incumbent to each prompt; nothing if the job was deleted."""
    try:
        replies = job.replies()
    except JobError:
        return []
    incumbent = {reply.prompt_id: reply for reply in replies if reply.policy == "incumbent"}
    return [
        {
            "prompt": last_question(reply.messages),
            "before": _answer(incumbent[reply.prompt_id]),
            "after": _answer(reply),
        }
        for reply in replies
        if reply.policy == "candidate" and reply.prompt_id in incumbent
    ]


def _answer(reply: PolicyReply) -> dict[str, Any]:
    return reply.model_dump(mode="json", include={"version", "reply", "tool_calls", "finished", "error"})


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
