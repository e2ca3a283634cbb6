"""The records of this room. Imports nothing of ours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

Outcome = Literal["complete", "cut", "cancelled", "failed"]
"""complete: the upstream's answer ended as it should (whatever its status code); cut: the upstream broke off;
cancelled: the client went away; failed: no answer came at all."""

Scope = Literal["completion", "turn", "conversation"]
Fault = Literal[
    "incomplete", "error", "withheld", "unknown_end", "no_text", "own_prompt", "echo", "suffix",
    "credential", "other_prompt", "not_teaching",
]  # fmt: skip
"""Why nothing can be learnt from an answer; ``log.faults.FAULTS`` has the words."""
Source = Literal["human", "environment", "judge", "implicit", "duel"]
"""duel: a preference of somebody who didn't know which version gave which answer."""

LIKERT = {"1": "Terrible", "2": "Poor", "3": "Okay", "4": "Good", "5": "Excellent"}
"""The points of a Likert rating, as they are typed, and what they mean."""
LIKERT_IN_WORDS = ", ".join(f"{points} {word}" for points, word in LIKERT.items())


def rating_word(reward: float, scale: str | None) -> str:
    """Return a rating as it was given; without a scale as a number, if it is neither good nor bad."""
    if scale == "likert":
        points = f"{2 * reward + 3:g}"
        return f"{points} of 5 ({LIKERT[points]})"
    return {1.0: "good", -1.0: "bad"}.get(reward, f"{reward:+.2f}")


def counting_in_words(rating: str | None) -> str:
    """Return what an answer counts as, after a rating of it was taken back."""
    return f"it counts as {rating} now" if rating else "no rating counts for it now"


def answer_name(completion_id: str, choice: int) -> str:
    """Return the name of one choice of a completion; the first one has the completion's."""
    return f"{completion_id}/{choice}" if choice else completion_id


def answer_named(name: str) -> tuple[str, int]:
    """Return the completion's ID and the choice."""
    completion_id, _, choice = name.partition("/")
    return completion_id, int(choice or 0)


RaterKey = tuple[str, str | None]
"""A rater and the key that named them."""

SIGNAL = "signal:"
"""The beginning of the first tag of feedback that burnish read from results of tools."""


class RequestFacts(NamedTuple):
    """The request: its sender, its time, its model."""

    created_at: float
    """When the request came in; seconds since the epoch, UTC."""
    surface: str
    """Wire format, e.g. "chat"."""
    model_asked: str
    caller: str
    """x-burnish-user, or "local"."""
    session: str | None = None
    """x-burnish-session, or a session id that a known client sends."""
    retry: int = 0
    """x-stainless-retry-count."""
    sub_agent: bool = False
    """Whether the headers say that a sub-agent asks, or the gate asked. Other sub-agents can be told by their messages
    only."""
    agent: str | None = None
    """The program that asks, by its User-Agent: "claude-code", or the name that it gives itself. None: no name."""
    best_of: str | None = None
    """If several answers were made and the best one sent: the completion that was sent. None: it was the only one."""
    rollout: str | None = None
    """The rollout that it belongs to, if any."""


class Answerer(NamedTuple):
    """The upstream and model that answered."""

    upstream: str
    """Its URL without credentials."""
    model_served: str
    adapter_version: int | None = None
    """0 = the base model; None = a model that burnish does not train (cloud)."""
    base_digest: str | None = None
    """"sha256:<hex>" of the base weights; None when burnish does not train them, or they are not known."""
    upstream_table: str | None = None
    """The name in ``[upstreams.NAME]`` of the further upstream that answered; None: the main one."""
    imported_from: str | None = None
    """What exported the answer, such as "langfuse", or "burnish" for another log; None: it was given here."""
    in_chat: bool = False
    """Whether burnish asked it in chat, because it lacks the client's format or to get token ids."""


class CompletionEnd(NamedTuple):
    """The end of a completion. From ``response_id`` to ``holds_credential`` it comes from the bodies, which the log's
    writer thread parses.
    """

    outcome: Outcome
    total_s: float
    status: int | None = None
    """HTTP status of the upstream, None when it never answered."""
    error: str | None = None
    """Why it was cut or failed, in words."""
    first_byte_s: float | None = None
    """From the request to the first byte of the response body."""
    response_id: str | None = None
    """The ``id`` in the upstream's response body."""
    finish_reason: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    choice_count: int = 1
    """More than 1 if the request asked for several answers (``n``) and got them."""
    holds_credential: bool = False
    """Whether request or answer hold a key or a token of a known kind."""
    reward: float | None = None
    """The score of the reward model that was on, in [0, 1]; of the first choice if there are several."""
    rewarded_by: str | None = None
    """That model. Scores of different models can't be compared."""


class Tokens(NamedTuple):
    """The tokens of one completion, as the engine saw and made them."""

    prompt: tuple[int, ...] = ()
    """Ids of the rendered prompt; empty if the engine doesn't tell them (MLX)."""
    reply: tuple[int, ...] = ()
    """Ids of all that was generated: thoughts, calls, stop words and the end of the turn included."""
    logprobs: tuple[float, ...] = ()
    """One for each id of the reply, in nats, of the model's own distribution: before temperature, samplers and grammar.
    NaN if the engine gives none for that token."""
    missing: str | None = None
    """Why there are none, in words; then the others are empty."""


STREAMED = ("text/event-stream", "application/x-ndjson", "application/stream+json")
"""Content types of streams."""


class Wire(NamedTuple):
    """The bytes of a request and its answer, and the tokens in them."""

    request_body: bytes = b""
    """As the model saw it, less the spliced model name: `/rl` exchanges are cut out already."""
    chunks: tuple[bytes, ...] = ()
    """Of the response body, as they went over the wire."""
    content_type: str = ""
    content_encoding: str = ""
    """"" | gzip | deflate | br | zstd."""
    traceparent: str | None = None
    """The client's span (W3C trace context); None unless traces are exported."""
    tokens: Tokens | None = None
    """None unless they were to be captured."""

    @property
    def streamed(self) -> bool:
        return self.content_type.lower().startswith(STREAMED)


@dataclass(frozen=True, slots=True)
class Choice:
    """One of several answers to a request."""

    index: int
    finish_reason: str | None
    reply: dict[str, Any]
    rating: float | None = None
    prompt: Any = None
    """Content of the prompt that it answers, if that is another one than the first choice answers."""


NO_PARAMS: dict[str, Any] = {}
"""Never changed."""


class Completion(NamedTuple):
    """One completion. The relay fills in the first six fields; the log parses ``wire`` and reads back the others.

    A new fact is a field of ``RequestFacts``, ``Answerer`` or ``CompletionEnd`` with a default, and a migration that
    adds the column of this name. Log, spill files and JSON follow from the fields.
    """

    id: str
    """"cmpl_" + 26 characters that sort by time."""
    asked: RequestFacts
    served: Answerer
    ended: CompletionEnd
    instructions: str | None = None
    """What burnish added to the system prompt; ``messages`` and ``wire`` are without it. None: nothing."""
    wire: Wire = Wire()
    """Empty when read back from the log."""
    conversation_id: str = ""
    continues: str | None = None
    """The completion whose reply its context ends with, not counting later messages of the user and of tools."""
    messages: tuple[dict[str, Any], ...] = ()
    """The context; empty in listings."""
    params: dict[str, Any] = NO_PARAMS
    """Everything else of the request (temperature, tools, …); empty in listings."""
    prompt: str = ""
    """What the person asked: the text of their last message, less what the client added to it."""
    reply: dict[str, Any] | None = None
    """The assistant message, of the first choice if there are several; None when there is none."""
    choices: tuple[Choice, ...] = ()
    """All of them, if there are several."""
    rating: float | None = None
    """Effective reward by ratings in [-1, 1], None when unrated."""
    fault: Fault | None = None
    """Why nothing can be learnt from it, whatever is said of it."""
    feedback: tuple[AppliedFeedback, ...] = ()
    """What was said of it, earliest first."""

    def rating_of(self, choice: int) -> float | None:
        return next(
            (alternative.rating for alternative in self.choices if choice and alternative.index == choice),
            self.rating,
        )

    def rated(self, choice: int = 0) -> str | None:
        """Return in words what the ratings of a choice come to; None when it is unrated."""
        if (rating := self.rating_of(choice)) is None:
            return None
        drafts = [
            applied_feedback.feedback.draft for applied_feedback in self.feedback if applied_feedback.counts
        ]
        scales = {draft.scale for draft in drafts if draft.reward == rating}
        return rating_word(rating, scales.pop() if len(scales) == 1 else None)

    def with_choice(self, index: int) -> Completion:
        """Return the completion with this choice as its reply to its own prompt; 0: the first one."""
        for choice in self.choices if index else ():
            if choice.index == index:
                end = self.ended._replace(finish_reason=choice.finish_reason)
                own: dict[str, Any] = {}
                if choice.prompt is not None:
                    text = choice.prompt if isinstance(choice.prompt, str) else ""
                    own = {"messages": ({"role": "user", "content": choice.prompt},), "prompt": text}
                return self._replace(reply=choice.reply, ended=end, **own)
        return self


class Passthrough(NamedTuple):
    """One request that was passed through without being read as a completion. Its bodies are not kept."""

    id: str
    """"pass_" + 26 characters that sort by time."""
    created_at: float
    """Seconds since the epoch, UTC."""
    method: str
    path: str
    """Without the query, which may hold keys."""
    model: str | None
    """As the request's body or query names it, if that was easily found."""
    upstream: str
    status: int | None
    outcome: Outcome
    error: str | None
    caller: str
    session: str | None
    request_bytes: int
    """Of the body; of a websocket all that the client sent."""
    response_bytes: int
    prompt_tokens: int | None
    """From the answer's ``usage``, if it has one."""
    completion_tokens: int | None
    first_byte_s: float | None
    total_s: float


@dataclass(frozen=True, slots=True)
class FeedbackDraft:
    """A validated piece of feedback on its way in."""

    completion_id: str
    """The resolved target."""
    target: str
    """How it was named: completion_id | response_id | conversation_id | last | rl."""
    reward: float | None = None
    """In [-1, 1]; good = 1, bad = -1, Likert (r - 3) / 2."""
    scale: str | None = None
    """binary | scalar | likert: how the reward was given."""
    comment: str | None = None
    correction: str | None = None
    preferred_over: str | None = None
    """The name of another answer."""
    scope: Scope = "completion"
    source: Source = "human"
    rater: str = "local"
    weight: float = 1.0
    tags: tuple[str, ...] = ()
    idempotency_key: str | None = None
    choice: int = 0
    """Index of the choice that it is about. Another than the first has the scope "completion"."""
    given_with: str | None = None
    """api_key | admin_key | proxy | none: what came with the request (``access.Key``). None: burnish had no keys."""

    @property
    def answer(self) -> str:
        return answer_name(self.completion_id, self.choice)

    @property
    def yields(self) -> bool:
        """Whether it is heard only if no person said anything: a judge's word, or what burnish read from tools."""
        from_tools = self.source == "environment" and any(tag.startswith(SIGNAL) for tag in self.tags)
        return self.source == "judge" or from_tools

    @property
    def voice(self) -> RaterKey:
        """Return who gave it: a name says who only among the names that come with the same key."""
        return self.rater, self.given_with


@dataclass(frozen=True, slots=True)
class Feedback:
    """One stored piece of feedback."""

    id: str
    """"fb_" + 26 characters that sort by time."""
    created_at: float
    conversation_id: str
    draft: FeedbackDraft
    undone_at: float | None = None
    superseded_by: str | None = None
    """A later rating by the same rater of the same target, which counts instead."""


@dataclass(frozen=True, slots=True)
class AppliedFeedback:
    """A piece of feedback that is about a completion: it names the completion, or covers it by its scope."""

    feedback: Feedback
    counts: bool
    """Whether any of it counts there: nothing later or narrower counts instead."""
    worse: RejectedAnswer | None
    """What it prefers the completion over, if that answers the same context."""


class Fate(NamedTuple):
    """What the latest run did with feedback on an answer."""

    version: int
    """The version that the run made."""
    reason: str | None = None
    """Why the version didn't learn it; None: it did."""
    held_out: bool = False
    """Whether the version was tested on it instead."""


class Usability(NamedTuple):
    """Whether training can use a piece of feedback, as far as is known."""

    usable: bool
    reason: str | None = None
    """Why it can't; or, if some of it is usable, what isn't."""

    def in_words(self) -> str:
        """Return a clause to add to a sentence that says what was rated; "" if all of it is usable."""
        if self.reason is None:
            return ""
        return f" ({self.reason})" if self.usable else f", but nothing will be learnt from it: {self.reason}"


class RejectedAnswer(NamedTuple):
    """An answer that another one was preferred over."""

    reply: dict[str, Any]
    upstream_table: str | None = None
    """As of ``Answerer``."""


class CoveredAnswer(NamedTuple):
    """Another answer that a rating covers."""

    fault: Fault | None
    upstream_table: str | None = None
    """As of ``Answerer``."""
    messages: Sequence[dict[str, Any]] = ()
    reply: dict[str, Any] | None = None
    """Like ``messages``, only of an answer without fault."""


class FeedbackReceipt(NamedTuple):
    feedback: Feedback
    created: bool
    """False: the same was said before, and this is that record."""
    covered_answers: tuple[CoveredAnswer, ...] = ()


@dataclass(frozen=True, slots=True)
class Instruction:
    """An instruction of a caller: a comment on an answer that was not good, or added by hand."""

    id: str
    """"inst_" + 10 hexadecimal digits of who said what: the same words have the same id for ever."""
    text: str
    """One line, as it is added to the system prompt."""
    comment: str | None
    """How it was last said of an answer; None when it was only added by hand."""
    by_hand: bool
    """Added by hand: it stays until it is removed."""
    feedback_ids: tuple[str, ...]
    """Standing feedback that says it, earliest first."""
    first_at: float
    """When it was first said or added, seconds since the epoch, UTC."""
    latest_at: float


@dataclass(frozen=True, slots=True)
class RatedCompletion:
    """A completion with what counts of its feedback: what training is made of."""

    completion: Completion
    """With messages, params and, where there is one, reply."""
    reward: float
    """0 when it was only commented on, corrected or compared."""
    weight: float
    feedback_ids: tuple[str, ...]
    comment: str | None
    correction: str | None
    worse: tuple[dict[str, Any], ...] = ()
    """Other replies to the same context, which this one was preferred over."""
    fault: str | None = None
    """Why it can't be learnt from: a ``Fault``, or words."""
    choice: int = 0
    """Index of the choice; ``completion.reply`` is its reply."""

    @property
    def answer(self) -> str:
        return answer_name(self.completion.id, self.choice)

    @property
    def rating_id(self) -> str:
        """The rating's own feedback id: a comment that came later doesn't change it."""
        return self.feedback_ids[0]


@dataclass(frozen=True, slots=True)
class Regeneration:
    """A user asked the same again: perhaps the first answer was not what they wanted."""

    completion_id: str
    """What they got then."""
    instead_of: str
    """The completion before it, of the same context."""
    conversation_id: str
    created_at: float
    """When they asked again, seconds since the epoch, UTC."""
    went_on_from: str | None
    """The answer to this context that the conversation went on from; None where it did from none, or from several."""
