"""Rollouts → what TRL's ``rollout_func`` returns, one sequence a line. Pure.

Since a trainer's ids must be those that the engine saw, rollouts without captured tokens are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from burnish.parts.datasets.tracks import TrackStep, token_prefix, tracks

NO_REWARD = "it has no reward"
NO_PROMPT = "the engine doesn't tell the ids of the prompt"


def why_not(rollout: Mapping[str, Any]) -> str | None:
    if rollout["reward"] is None:
        return NO_REWARD
    for step in rollout["steps"]:
        if not step["tokens"]:
            return f"no token ids: {step['missing']}"
        if not step["tokens"]["prompt"]:
            return NO_PROMPT
    return None


def lines(rollout: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """``prompt_ids`` is the first prompt. ``completion_ids`` is all that follows: the model's replies, with 1 in
    ``env_mask``, and between them what the environment said, with 0. Shapes: ``completion_ids``, ``logprobs`` and
    ``env_mask`` are of one length.
    """
    parts = tracks(rollout["steps"], token_prefix)
    for part, track in enumerate(parts):
        yield {
            **_sequence(track),
            "reward": rollout["reward"],
            "step_rewards": [track_step.step["reward"] for track_step in track],
            "rollout": rollout["id"],
            "part": part,
            "parts": len(parts),
            **{name: rollout[name] for name in ("task", "group", "seed", "version", "tags")},
        }


def _sequence(track: Sequence[TrackStep]) -> dict[str, Any]:
    first = track[0].step["tokens"]
    prompt, ids, logprobs, mask = list(first["prompt"]), list[int](), list[float | None](), list[int]()
    for track_step in track:
        tokens = track_step.step["tokens"]
        between = tokens["prompt"][len(prompt) + len(ids) :]
        reply = tokens["reply"]
        ids += [*between, *reply]
        logprobs += [0.0] * len(between) + list(tokens["logprobs"])
        # A step that two tracks share is learnt once.
        mask += [0] * len(between) + [0 if track_step.shared else 1] * len(reply)
    return {"prompt_ids": prompt, "completion_ids": ids, "logprobs": logprobs, "env_mask": mask}
