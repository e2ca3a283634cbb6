"""A coding assistant's answers through the official client, each written into a file as soon as it is there.

An answer is never asked twice: the file goes on where it stopped.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Self

import httpx

from bench.conventions.code import has_text_behind_block

PROGRAM = "You are a coding assistant. Answer with code in a Markdown block."
"""Each system prompt begins with it. Without it, a small model often calls the function that it should write."""
TEMPERATURE, TOP_P = 0.7, 0.95
TIMEOUT_S = 1800.0
TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": "read_file",
            "description": "Read a file of the project.",
            "parameters": {
                "type": "object",
                "properties": {"path": {"type": "string"}},
                "required": ["path"],
            },
        },
    },
    {
        "type": "function",
        "function": {
            "name": "list_files",
            "description": "List the project's files.",
            "parameters": {"type": "object", "properties": {}},
        },
    },
]
"""What each request offers, as coding agents do."""

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Request:
    key: str
    """Names the answer in the file."""
    question: str
    more: str
    """Of the system prompt, behind ``PROGRAM``."""
    seed: int

    @property
    def system(self) -> str:
        return f"{PROGRAM} {self.more}".strip()

    @property
    def digest(self) -> str:
        """Tells apart what was asked, should a question or a sentence change."""
        return sha256(json.dumps([self.question, self.system, TOOLS]).encode()).hexdigest()[:12]


@dataclass(frozen=True, slots=True)
class Answer:
    key: str
    digest: str
    """Of its request."""
    text: str
    ending: str
    """stop, length or tool_calls; block: nobody listened any longer, because the first block of code was complete."""
    prompt_tokens: int | None
    """None of an answer that nobody listened to until its end, as of ``completion_tokens`` and ``cached_tokens``."""
    completion_tokens: int | None
    cached_tokens: int | None
    first_s: float
    """Seconds to the first token."""
    whole_s: float
    response_id: str


class AnswerFile:
    """Answers by key, in a file of JSON lines."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._answers: dict[str, Answer] = {}
        for line in path.read_text(encoding="utf-8").split("\n") if path.exists() else ():
            try:
                answer = Answer(**json.loads(line))
            except ValueError:  # a line that was cut off
                continue
            self._answers[answer.key] = answer

    def get(self, request: Request) -> Answer | None:
        """Return the answer, unless it is one to other words."""
        answer = self._answers.get(request.key)
        return answer if answer and answer.digest == request.digest else None

    def add(self, answer: Answer) -> None:
        self._answers[answer.key] = answer
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            # A line that was cut off stays alone.
            file.write(("\n" if file.tell() else "") + json.dumps(asdict(answer), ensure_ascii=False))


class Assistant:
    """The assistant at a URL; closed at the end of a ``with``."""

    def __init__(self, url: str, max_tokens: int, *, whole: bool, model: str = "default") -> None:
        """``whole``: listen to the end; otherwise until the first block of code is complete."""
        from openai import DefaultHttpxClient, OpenAI

        self._url, self._model, self._max_tokens, self._whole = url, model, max_tokens, whole
        self._client: Any = OpenAI(
            base_url=f"{url}/v1",
            api_key="unused",
            timeout=TIMEOUT_S,
            max_retries=0,
            # A web proxy can't reach this machine's loopback.
            http_client=DefaultHttpxClient(trust_env=False),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._client.close()

    def ask(self, request: Request) -> Answer:
        began = time.monotonic()
        stream = self._client.chat.completions.create(
            model=self._model,
            messages=[
                {"role": "system", "content": request.system},
                {"role": "user", "content": request.question},
            ],
            tools=TOOLS,
            max_tokens=self._max_tokens,
            temperature=TEMPERATURE,
            top_p=TOP_P,
            seed=request.seed,
            stream=True,
            stream_options={"include_usage": True},
        )
        text, ending, response_id, usage, first_s = "", "", "", None, None
        with stream:
            for chunk in stream:
                response_id, usage = chunk.id, chunk.usage or usage
                for choice in chunk.choices:
                    if first_s is None and (choice.delta.content or choice.delta.tool_calls):
                        first_s = time.monotonic() - began
                    text += choice.delta.content or ""
                    ending = choice.finish_reason or ending
                if not self._whole and not ending and has_text_behind_block(text):
                    ending = "block"
                    break
        whole_s = time.monotonic() - began
        details = usage.prompt_tokens_details if usage else None
        return Answer(
            request.key,
            request.digest,
            text,
            ending,
            usage.prompt_tokens if usage else None,
            usage.completion_tokens if usage else None,
            details.cached_tokens if details else None,
            round(whole_s if first_s is None else first_s, 3),
            round(whole_s, 3),
            response_id,
        )

    def comment(self, answer: Answer, text: str) -> None:
        """Say what is wrong with an answer. Raises httpx.HTTPError."""
        feedback = {"response_id": answer.response_id, "rating": "bad", "comment": text}
        response = httpx.post(f"{self._url}/v1/feedback", json=feedback, timeout=TIMEOUT_S, trust_env=False)
        response.raise_for_status()


def ask_missing(
    assistant: Assistant, requests: Iterable[Request], file: AnswerFile, at_once: int, say: Say
) -> None:
    """Ask what isn't in the file, a few at once and in this order, and write each answer into it."""
    missing = [request for request in requests if not file.get(request)]
    with ThreadPoolExecutor(at_once) as threads:
        pending = [threads.submit(assistant.ask, request) for request in missing]
        try:
            for count, future in enumerate(as_completed(pending), start=1):
                file.add(future.result())
                say(f"{count} of {len(missing)} answers")
        except BaseException:
            for future in pending:
                future.cancel()
            raise
