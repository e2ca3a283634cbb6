"""The records of adapter versions and of their history. Imports nothing of ours."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

BASE_VERSION = 0
"""The base model without an adapter. Versions count from 1."""

State = Literal["candidate", "rejected", "live", "retired", "pruned"]


Likely = tuple[int, str, float]
"""A token that may come next: its id, its text, its log-probability in nats."""


class Probe(BaseModel):
    """A context after which a version and its base go on differently, with what the trainer's models say next."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    ids: tuple[int, ...]
    text: str
    """The same, for engines that take no ids; their tokenizer may add a token that begins a text."""
    base: tuple[Likely, ...]
    """The base model's likeliest next tokens, the likeliest first."""
    version: tuple[Likely, ...]
    base_text: str
    """The base model's greedy continuation, some tokens long."""
    version_text: str


class Provenance(BaseModel):
    """How a version was made."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    base_model: str
    """Name of the base model for users, e.g. "smollm2"."""
    base_digest: str
    """"sha256:<hex>" of the base weights file; a version serves on exactly this base."""
    parent: int
    """Version whose weights training started from; 0 = fresh on the base."""
    run_id: str
    """Training run that made it."""
    feedback_ids: tuple[str, ...]
    """The feedback that it was trained on."""
    objective: str
    hyperparameters: dict[str, Any]
    metrics: dict[str, Any]
    """Final figures of training (loss, kl, seconds, peak_rss_bytes, …)."""
    held_out: tuple[str, ...] = ()
    """The feedback that the gate tests it on."""
    unlearnt: dict[str, str] = {}
    """Names of answers with feedback that taught nothing all the same, and why."""
    proof: tuple[Probe, ...] = ()
    """By what an engine that applies the version is known; empty: see ``Registry.set_proof``."""


class Manifest(Provenance):
    """The content of ``manifest.json`` in a version's directory. Nothing but ``proof`` ever changes."""

    version: int
    """Counts from 1; directory ``v0007``, shown as "v7", served as ``<base_model>@v7``."""
    created_at: str
    """UTC, ISO 8601."""
    checksums: dict[str, str]
    """File name → sha256 hex, for every other file of the directory."""


class Event(BaseModel):
    """One change of state, with its reason. Append-only."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    at: str
    """UTC, ISO 8601."""
    version: int
    """0: the base model went live."""
    state: State
    reason: str
    details: dict[str, Any] = {}
    """E.g. the verdict of the gate, check by check."""


class AdapterVersion(BaseModel):
    """A version with its present state."""

    model_config = ConfigDict(frozen=True)

    manifest: Manifest
    path: Path
    """Directory in PEFT layout: ``adapter_model.safetensors``, ``adapter_config.json``, ``manifest.json``."""
    state: State
    reason: str
    """Why it is in this state."""

    @property
    def number(self) -> int:
        return self.manifest.version

    @property
    def served_name(self) -> str:
        """The model name under which engines serve it, e.g. "smollm2@v7"."""
        return f"{self.manifest.base_model}@v{self.manifest.version}"


def learnt_by(version: int, manifests: Mapping[int, Manifest]) -> frozenset[str]:
    """Return the IDs of all feedback that a version and its ancestors learnt from."""
    feedback_ids: set[str] = set()
    while version != BASE_VERSION and version in manifests:
        feedback_ids |= set(manifests[version].feedback_ids)
        version = manifests[version].parent
    return frozenset(feedback_ids)
