"""The metrics, one record each: what is counted, and what docs/metrics.md says of it.

Names and units are Prometheus' conventions; comments give the name in the OpenTelemetry GenAI conventions, if any.
Every label has values from a fixed set, so that no client can make a series.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

# The bounds of gen_ai.client.operation.duration, and three more: agents wait for minutes.
DURATION_S = (
    0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92, 163.84, 327.68, 655.36,
)  # fmt: skip
# The bounds of gen_ai.server.time_to_first_token, and two more: a cold engine reads a long prompt for a minute.
FIRST_TOKEN_S = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 30.0, 60.0,
)  # fmt: skip
# A swap waits for the engine to load and probe: a second where that is a child, minutes for a large model.
SWAP_S = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)


@dataclass(frozen=True, slots=True, eq=False)
class Measure:
    name: str
    """A counter ends in ``_total``."""
    what: str
    """One sentence, for the scrape and for the documentation."""
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    """Upper bounds of a histogram, without +Inf."""

    @property
    def kind(self) -> Literal["counter", "gauge", "histogram"]:
        if self.buckets:
            return "histogram"
        return "counter" if self.name.endswith("_total") else "gauge"


REQUESTS = Measure(
    "burnish_requests_total",
    "Completions by outcome (complete, cut by the upstream, cancelled by the client, failed without an answer) and by "
    "the class of the upstream's status (2xx … 5xx, none).",
    ("surface", "status", "outcome"),
)
DURATION = Measure(  # gen_ai.client.operation.duration
    "burnish_request_duration_seconds",
    "From the request to the last byte of its answer.",
    ("surface", "outcome"),
    DURATION_S,
)
FIRST_TOKEN = Measure(  # gen_ai.client.operation.time_to_first_chunk
    "burnish_time_to_first_token_seconds",
    "From the request to the first byte of an answer that is streamed.",
    ("surface",),
    FIRST_TOKEN_S,
)
TOKENS = Measure(  # gen_ai.client.token.usage, with its gen_ai.token.type
    "burnish_tokens_total",
    "Tokens of prompts (type=input) and of answers (type=output), as the upstream's usage counts them.",
    ("surface", "type"),
)
REQUEST_BYTES = Measure("burnish_request_bytes_total", "Bytes of completions' request bodies.", ("surface",))
RESPONSE_BYTES = Measure(
    "burnish_response_bytes_total",
    "Bytes of their answers' bodies as they went over the wire, up to what the log keeps of one.",
    ("surface",),
)
PASSTHROUGH = Measure(
    "burnish_passthrough_total",
    "Other requests that were passed through and logged, by kind (embeddings, audio, images, files, batches, "
    "websocket, other), outcome and the class of the upstream's status.",
    ("kind", "status", "outcome"),
)
PASSTHROUGH_BYTES = Measure(
    "burnish_passthrough_bytes_total",
    "Bytes of their bodies, to the upstream (direction=out) and back (direction=in).",
    ("kind", "direction"),
)
PASSTHROUGH_TOKENS = Measure(
    "burnish_passthrough_tokens_total",
    "Their tokens (type=input, output), where the upstream's usage counts them in plain sight.",
    ("kind", "type"),
)
REFUSALS = Measure(
    "burnish_refusals_total",
    "Requests that burnish answered with an error of its own, by HTTP status: at the guard, for a body that it cannot "
    "read, or because there is no upstream.",
    ("status",),
)
IN_FLIGHT = Measure("burnish_requests_in_flight", "Completions that are being answered right now.")
QUEUE_ENTRIES = Measure("burnish_log_queue_entries", "What waits to be written to the log.")
QUEUE_BYTES = Measure("burnish_log_queue_bytes", "Memory that waiting captures take, roughly.")
LAG = Measure(
    "burnish_log_lag_seconds",
    "How long the oldest completion that is not yet on the disk has been over; 0 when all are.",
)
DROPPED = Measure(
    "burnish_log_dropped_total", "Completions that the log had no room for while the disk failed."
)
RATINGS = Measure(
    "burnish_ratings_total",
    "Ratings by kind (good, neutral, bad) and by who gave them (human, environment, judge, implicit).",
    ("rating", "source"),
)
REMARKS = Measure(
    "burnish_remarks_total",
    "What feedback said besides: kind is comment, correction or preference.",
    ("kind", "source"),
)
LIVE_VERSION = Measure(
    "burnish_adapter_live_version", "The version that new requests get; 0 is the base model."
)
VERSIONS = Measure(
    "burnish_adapter_versions",
    "Adapter versions by state (candidate, live, retired, rejected, pruned).",
    ("state",),
)
TRAINING = Measure("burnish_training_running", "1 while a training run is under way.")
RUNS = Measure(
    "burnish_training_runs_total",
    "Training runs that have ended, by outcome (live, candidate, rejected, failed, interrupted).",
    ("outcome",),
)
RUN_SECONDS = Measure(
    "burnish_training_seconds_total", "What they took, judging and swapping included.", ("outcome",)
)
VERDICTS = Measure(
    "burnish_gate_verdicts_total", "What the gate said (passed, undecided, rejected).", ("verdict",)
)
SWAPS = Measure("burnish_swaps_total", "How often another version went live, rolling back included.")
SWAP_DURATION = Measure(
    "burnish_swap_duration_seconds", "From the decision until new requests got the version.", buckets=SWAP_S
)
BUILD = Measure("burnish_build_info", "Always 1; the label has burnish's version.", ("version",))

MEASURES = tuple(value for value in list(vars().values()) if isinstance(value, Measure))
"""All of them, in the order in which they are shown."""
