"""Completions as the relay hands them to the log."""

from __future__ import annotations

from typing import Any

from burnish.proxy.records import Answerer, Completion, CompletionEnd, RequestFacts

PLAIN = Completion(
    "cmpl_1",
    RequestFacts(created_at=0.0, surface="chat", model_asked="smollm2", caller="local"),
    Answerer(upstream="http://127.0.0.1:1", model_served="smollm2@v1", adapter_version=1),
    CompletionEnd(outcome="complete", total_s=0.2, status=200, first_byte_s=0.1),
)


def changed(completion: Completion, **facts: Any) -> Completion:
    """The record with some facts changed, each in the part that it belongs to."""
    for name in ("asked", "served", "ended", "wire"):
        part = getattr(completion, name)
        facts[name] = part._replace(**{field: facts.pop(field) for field in part._fields if field in facts})
    return completion._replace(**facts)
