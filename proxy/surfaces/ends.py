"""How an answer ended: whole, cut by a limit, withheld, failed, or for a reason that burnish doesn't know.

The log keeps chat's finish reason. Whoever learns, translates or shows an answer asks these functions about it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from burnish.proxy.surfaces.lenient import Json, error_in, objects

End = Literal["whole", "stopped", "length", "withheld", "failed", "unknown"]
"""whole: the model ended it; stopped: at a stop string, or to go on in a next request; length: a limit cut it;
withheld: a filter or a refusal ended it; failed: an error did; unknown: not said, or not in the tables."""

ENDS: dict[str, End] = {
    "stop": "whole",
    "eos": "whole",
    "tool_calls": "whole",
    "function_call": "whole",
    "stop_sequence": "stopped",
    "pause_turn": "stopped",
    "compaction": "stopped",
    "load": "stopped",
    "unload": "stopped",
    "length": "length",
    "content_filter": "withheld",
    "error": "failed",
}
"""Reason as the log keeps it. eos: ``stop``, and the engine says that it met none of the request's stop strings.
(un)load: Ollama answered a request that asked nothing."""

CHAT = {
    # OpenAI, API reference: the finish_reason of chat completions
    **{name: name for name in ("stop", "length", "tool_calls", "function_call", "content_filter")},
    # Hugging Face, text-generation-inference: FinishReason; also IBM watsonx.ai
    "eos_token": "stop",
    "stop_sequence": "stop_sequence",
    "token_limit": "length",
    "time_limit": "length",
    # llama.cpp, /completion: stop_type; LM Studio SDK: LLMPredictionStopReason
    **{"eos": "stop", "limit": "length", "word": "stop_sequence"},
    **{"eosfound": "stop", "toolcalls": "tool_calls", "stopstringfound": "stop_sequence"},
    **{"maxpredictedtokensreached": "length", "contextlengthreached": "length"},
    **{"failed": "error", "userstopped": "error", "modelunloaded": "error"},
    # Mistral, API reference: FinishReason
    "model_length": "length",
    # Cohere, Chat API v2 and v1: finish_reason
    **{
        "complete": "stop",
        "tool_call": "tool_calls",
        "max_tokens": "length",
        "error_toxic": "content_filter",
    },
    **{"error_limit": "length", "user_cancel": "error", "timeout": "error"},
    # Z.ai and DeepSeek, API references: finish_reason; AWS, Bedrock Converse: StopReason
    **{"sensitive": "content_filter", "network_error": "error", "insufficient_system_resource": "error"},
    **{"content_filtered": "content_filter", "guardrail_intervened": "content_filter"},
    **{"malformed_model_output": "error", "malformed_tool_use": "error"},
    # OpenRouter, "Errors"; vLLM and SGLang: requests that were aborted; AI SDK: LanguageModelFinishReason
    **{"error": "error", "abort": "error", "aborted": "error", "cancelled": "error", "canceled": "error"},
    **{"tool-calls": "tool_calls", "content-filter": "content_filter"},
}
MESSAGES = {
    # Anthropic, Messages: stop_reason
    "end_turn": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "stop_sequence": "stop_sequence",
    "pause_turn": "pause_turn",
    "compaction": "compaction",
    "refusal": "content_filter",
}
RESPONSES = {
    # OpenAI, Responses: the status of a response, and the reason in incomplete_details
    "completed": "stop",
    "max_output_tokens": "length",
    "content_filter": "content_filter",
    "failed": "error",
    "cancelled": "error",
}
GEMINI = {
    # Google, Gemini API and Vertex AI: FinishReason
    **{"stop": "stop", "max_tokens": "length"},
    **dict.fromkeys(
        ("safety", "recitation", "language", "blocklist", "prohibited_content", "spii", "model_armor",
         "image_safety", "image_prohibited_content", "image_recitation"),
        "content_filter",
    ),
    **dict.fromkeys(
        ("malformed_function_call", "unexpected_tool_call", "too_many_tool_calls", "no_image",
         "missing_thought_signature", "malformed_response"),
        "error",
    ),
}  # fmt: skip
FORMATS: tuple[Mapping[str, str], ...] = (CHAT, MESSAGES, RESPONSES, GEMINI)
"""Reason on the wire, in small letters → as the log keeps it. Ollama's are chat's."""
REASONS = {name: reason for table in FORMATS for name, reason in table.items()}
"""Gateways pass on the reasons of other formats, so each format knows all of them. No name has two meanings."""
EOS = ("eos", "eos_token", "eosFound")
STOPS = frozenset({"stop_reason", "matched_stop"})
"""Members of a choice: null at the end of the turn (vLLM), or its token (SGLang), or the string that was met."""
UNSAID = ("", "null", "finish_reason_unspecified")
"""DashScope's and Gemini's names for nothing."""


def reason_of(wire: Any) -> str | None:
    """Return a reason as the log keeps it; an unknown one as it came; None if there is none."""
    if not isinstance(wire, str) or wire.lower() in UNSAID:
        return None
    return REASONS.get(wire.lower(), wire)


def end_of(reason: str | None) -> End:
    """Return how an answer ended, by the reason as the log keeps it, or kept it before there were the tables."""
    return ENDS.get(reason_of(reason) or "", "unknown")


def finished(reason: str | None, params: Mapping[str, Any] | None = None) -> bool:
    """Return whether the model ended its answer itself, as far as is known.

    ``params``: the request's. ``stop`` may also mean one of its stop strings.
    """
    return end_of(reason) == "whole" and not (reason == "stop" and (params or {}).get("stop"))


def failure(wire: Any) -> str | None:
    """Return in words that an answer failed; None if its reason on the wire says nothing of that."""
    return f"the answer ended with {wire!r}" if wire and end_of(reason_of(wire)) == "failed" else None


class ChoiceEnd(NamedTuple):
    """What a choice of chat says of its end."""

    reason: str | None = None
    """As the log keeps it."""
    failure: str | None = None
    """Why it failed, in words."""
    own: bool = False
    """Whether the engine says that it met none of the request's stop strings."""


GOES_ON = ChoiceEnd()
USUAL = {name: ChoiceEnd(name) for name in ("stop", "tool_calls", "length")}


VERBOSE, STOP_TYPE = "__verbose", "stop_type"
"""llama.cpp's member with all that it knows of a choice, and the one in it that says why the choice ended."""


def choices_of(part: Json) -> list[Json]:
    """Return the choices of an answer or an event. What llama.cpp says beside one of its end becomes its member."""
    choices = objects(part.get("choices"))
    if VERBOSE not in part:
        return choices
    verbose = part[VERBOSE]
    if not isinstance(verbose, dict) or not isinstance(stop_type := verbose.get(STOP_TYPE), str):
        return choices
    own = verbose.get("index", 0)
    return [
        {**choice, STOP_TYPE: stop_type} if choice.get("index", 0) == own else choice for choice in choices
    ]


def end_in(choice: Mapping[str, Any], stop_type: Any = None) -> ChoiceEnd:
    """``stop_type``: llama.cpp's, which its streams say before the reason."""
    wire, native = choice.get("finish_reason"), choice.get("native_finish_reason")
    if stop_type and wire == "stop" and isinstance(stop_type, str) and stop_type in REASONS:
        wire = stop_type
    error = error_in({"error": choice["error"]}) if "error" in choice else None
    if not (wire or error):
        return GOES_ON
    told = not STOPS.isdisjoint(choice)
    if not (error or native or told) and isinstance(wire, str) and wire in USUAL:
        return USUAL[wire]
    reason = reason_of(wire)
    failed = error or failure(wire) or failure(native)
    if reason != "stop" or not (told or wire in EOS):
        return ChoiceEnd(reason, failed)
    met = [choice[name] for name in STOPS if name in choice]
    if words := next((word for word in met if isinstance(word, str) and word), None):
        return ChoiceEnd(reason_of(words) if words.lower() in REASONS else "stop_sequence", failed)
    own = wire in EOS or any(isinstance(word, int) for word in met) or choice.get("stop_reason", "") is None
    return ChoiceEnd(reason, failed, own)
