"""A running burnish, as an agent sees it: rollouts, completions, training. Threads may share one."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import httpx

from burnish.agents.choices import QUESTION, Choices
from burnish.agents.errors import MissingPackage, NotRunning, Refused

if TYPE_CHECKING:
    from openai import OpenAI

ADDRESS = "http://127.0.0.1:8787"
TIMEOUT_S = 600.0
"""Of one request: a large model on a busy machine is slow."""
POLL_S = 0.5
TRIAL_TOKENS = 8
NOT_LEARNING = "not_learning"
"""burnish's code for an upstream whose versions it doesn't choose."""

Version = int | Literal["live", "candidate", "base"]
Json = dict[str, Any]

TRUE_SAMPLING: Mapping[str, Any] = {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0}
"""Samples from the model's own distribution. Engines cut its tail off by default, and then a policy gradient learns
from other probabilities than those that chose the action."""
OPENAIS_OWN = ("temperature", "top_p", "max_tokens", "response_format")
"""Fields that the ``openai`` client takes by name. Others go into ``extra_body``."""


class Burnish:
    def __init__(
        self,
        url: str | None = None,
        *,
        model: str = "default",
        api_key: str | None = None,
        admin_key: str | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        """Ask nothing yet. ``url``: where burnish listens; None: BURNISH_URL, else its usual address.

        Keys that aren't given are BURNISH_API_KEY and BURNISH_ADMIN_KEY. Raises MissingPackage without ``openai``.
        """
        try:
            from openai import OpenAI
        except ImportError as error:
            raise MissingPackage("openai", "agents", "an agent") from error
        address = url or os.environ.get("BURNISH_URL") or ADDRESS
        self.url = address.rstrip("/").removesuffix("/v1")
        self.model = model
        api_key = api_key or os.environ.get("BURNISH_API_KEY")
        # Whoever may do everything may do this, too.
        admin_key = admin_key or os.environ.get("BURNISH_ADMIN_KEY") or api_key
        headers = {"authorization": f"Bearer {admin_key}"} if admin_key else {}
        self._http = httpx.Client(base_url=self.url, timeout=timeout_s, trust_env=False, headers=headers)
        # A retry would be a step of its own in the rollout, and shift the rewards.
        self._openai = OpenAI(
            base_url=f"{self.url}/v1", api_key=api_key or "-", timeout=timeout_s, max_retries=0
        )
        self._lock = threading.Lock()
        self._sampling: Mapping[str, Any] | None = None
        self.choices = Choices(self._try)

    def close(self) -> None:
        self._http.close()
        self._openai.close()

    def begin(self, **fields: Any) -> Json:
        """Begin a rollout and return it. Raises NotRunning, Refused.

        If burnish doesn't choose the version, the newest one is the model as it is.
        """
        try:
            return self._ask("POST", "/v1/rollouts", fields)
        except Refused as error:
            if error.code != NOT_LEARNING or fields.get("version") != "candidate":
                raise
            return self._ask("POST", "/v1/rollouts", fields | {"version": "live"})

    def reward(self, rollout: str, value: float, step: int | None, reason: str | None) -> None:
        """Raises NotRunning, Refused."""
        self._ask("POST", f"/v1/rollouts/{rollout}/reward", {"value": value, "step": step, "reason": reason})

    def end(self, rollout: str) -> None:
        """Raises NotRunning, Refused."""
        self._ask("POST", f"/v1/rollouts/{rollout}/end", {})

    def missing_tokens(self, rollout: str) -> str | None:
        """Return why the token ids of a step are missing, or None. Raises NotRunning, Refused."""
        tokens = self._ask("GET", f"/v1/rollouts/{rollout}").get("tokens") or {}
        return next(iter(tokens.get("missing") or ()), None)

    def reply(self, rollout: str, messages: Sequence[Mapping[str, Any]], fields: Mapping[str, Any]) -> str:
        """Ask within a rollout, sampling from the model's own distribution. Raises NotRunning, Refused."""
        client = self._openai.with_options(base_url=f"{self.url}/r/{rollout}/v1")
        return self._complete(client, messages, {**self._known_sampling(), **fields})

    def import_records(self, records: Sequence[Json]) -> list[Json]:
        """Store records of the log, as ``burnish data import`` does; returns what became of each."""
        answer = self._ask("POST", "/burnish/records", {"records": list(records)})
        return list(answer["data"])

    def train(self, **fields: Any) -> Json:
        """Start a run, wait for its end and return it. Raises NotRunning, Refused."""
        return self._run("/burnish/train", fields)

    def judge(self, version: int) -> Json:
        """Have a candidate judged, wait for the verdict and return the run. Raises NotRunning, Refused."""
        return self._run(f"/burnish/adapters/{version}/judge", {})

    def _run(self, path: str, body: Json) -> Json:
        run_id = self._ask("POST", path, body)["run_id"]
        while not (run := self._ask("GET", f"/burnish/runs/{run_id}"))["ended_at"]:
            time.sleep(POLL_S)
        return run

    def _known_sampling(self) -> Mapping[str, Any]:
        """Return the fields that sample truly, as far as the engine takes them; found by asking once."""
        with self._lock:
            if self._sampling is None:
                own = {name: TRUE_SAMPLING[name] for name in TRUE_SAMPLING if name in OPENAIS_OWN}
                self._sampling = TRUE_SAMPLING if self._takes(TRUE_SAMPLING) else own
            return self._sampling

    def _takes(self, fields: Mapping[str, Any]) -> bool:
        """Return whether the engine takes these fields of a request. Raises NotRunning, Refused for other reasons."""
        try:
            self._try(QUESTION, fields)
        except Refused as error:
            if error.status in (httpx.codes.BAD_REQUEST, httpx.codes.UNPROCESSABLE_ENTITY):
                return False
            raise
        return True

    def _try(self, question: str, fields: Mapping[str, Any]) -> str:
        all_fields = {"temperature": 0.0, "max_tokens": TRIAL_TOKENS, **fields}
        return self._complete(self._openai, [{"role": "user", "content": question}], all_fields)

    def _complete(
        self, client: OpenAI, messages: Sequence[Mapping[str, Any]], fields: Mapping[str, Any]
    ) -> str:
        from openai import APIConnectionError, APIStatusError

        own = {name: setting for name, setting in fields.items() if name in OPENAIS_OWN}
        extra = {name: setting for name, setting in fields.items() if name not in OPENAIS_OWN}
        try:
            completion: Any = client.chat.completions.create(
                model=self.model,
                messages=messages,  # type: ignore[arg-type]  # mappings of any kind are sent as they are
                extra_body=extra,
                **own,
            )
        except APIConnectionError as error:
            raise self._gone(error) from error
        except APIStatusError as error:
            raise _refused(error.status_code, error.body) from error
        return (completion.choices[0].message.content or "") if completion.choices else ""

    def _ask(self, method: str, path: str, body: Any = None) -> Json:
        try:
            response = self._http.request(method, path, json=body)
        except httpx.TransportError as error:
            raise self._gone(error) from error
        try:
            content = response.json()
        except ValueError:
            content = response.text
        if response.is_error:
            raise _refused(response.status_code, content)
        if not isinstance(content, dict):
            raise Refused(f"{self.url}{path} answered {str(content)[:80]!r}: is this burnish?")
        return content

    def _gone(self, error: Exception) -> NotRunning:
        return NotRunning(
            f"burnish doesn't answer at {self.url} ({error}): start it with `burnish up`, or give its address "
            "(url=…, or BURNISH_URL). What was sent before is kept"
        )


def _refused(status: int, body: Any) -> Refused:
    """Return an error with burnish's own words, or those of the engine behind it."""
    error = body.get("error", body) if isinstance(body, dict) else body
    if isinstance(error, dict):
        return Refused(str(error.get("message") or error), status=status, code=error.get("code"))
    return Refused(f"{status}: {str(error)[:500]}", status=status)
