"""Exports of other programs, in the forms that their documentation and their own tests have."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

Object = dict[str, Any]


def lines(path: Path, *objects: Any) -> Path:
    path.write_text("".join(json.dumps(each) + "\n" for each in objects))
    return path


def langfuse(**score: Any) -> list[Object]:
    """A trace with two generations, and a score of it."""
    asked = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is tea?"}]
    return [
        {"id": "t1", "timestamp": "2026-05-01T10:00:00.000Z", "name": "chat", "userId": "ann", "sessionId": "s1",
         "input": {"question": "What is tea?"}, "output": "A drink."},
        {"id": "o1", "traceId": "t1", "type": "GENERATION", "startTime": "2026-05-01T10:00:00Z", "model": "gpt",
         "input": "Rewrite: tea", "output": "tea?"},
        {"id": "o2", "traceId": "t1", "type": "GENERATION", "startTime": "2026-05-01T10:00:01Z", "model": "gpt",
         "input": {"messages": asked}, "output": {"role": "assistant", "content": "A drink."}},
        {"id": "x", "traceId": "t1", "type": "SPAN", "input": "a", "output": "b"},
        {"id": "s1", "traceId": "t1", "name": "thumb", "value": 1, "dataType": "BOOLEAN", "source": "API",
         "comment": None, "timestamp": "2026-05-01T11:00:00Z", **score},
    ]  # fmt: skip


def chat_of_open_webui(rating: Any = None) -> Object:
    """A chat with two answers to the second question."""

    def said(name: str, parent: str | None, role: str, content: str, **more: Any) -> Object:
        place = {"id": name, "parentId": parent, "timestamp": 1777630000}
        return place | {"role": role, "content": content} | more

    annotation = {"annotation": {"rating": rating, "reason": "too_verbose", "comment": "Shorter."}}
    messages = [
        said("m1", None, "user", "Hello"),
        said("m2", "m1", "assistant", "Hi!", model="a"),
        said("m3", "m2", "user", "What is tea?"),
        said("m4", "m3", "assistant", "A long story about tea.", model="a", **annotation if rating else {}),
        said("m5", "m3", "assistant", "A drink.", model="b"),
    ]
    history = {"messages": {each["id"]: each for each in messages}, "currentId": "m4"}
    chat = {"params": {"system": "Be brief."}, "history": history}
    return {"id": "c1", "user_id": "u1", "title": "Tea", "chat": chat}


def feedback_of_open_webui(rating: Any, siblings: list[str] | None = None) -> Object:
    data = {"rating": rating, "model_id": "a", "sibling_model_ids": siblings}
    return {
        "id": "f1", "user_id": "u1", "version": 0, "type": "rating",
        "data": data | {"reason": "too_verbose", "comment": "Shorter.", "tags": []},
        "meta": {"model_id": "a", "message_id": "m4", "message_index": 3, "chat_id": "c1"},
        "snapshot": {"chat": chat_of_open_webui()}, "created_at": 1777630100, "updated_at": 1777630100,
    }  # fmt: skip


def langsmith(**feedback: Any) -> list[Object]:
    """A chain with an LLM run of LangChain's in it, and feedback on the chain."""
    human = {"lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", "HumanMessage"],
             "kwargs": {"content": "What is tea?", "type": "human"}}  # fmt: skip
    ai = {"lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", "AIMessage"],
          "kwargs": {"content": "", "tool_calls": [{"name": "look", "args": {"at": "tea"}, "id": "c1"}]}}  # fmt: skip
    return [
        {"id": "r1", "trace_id": "r1", "run_type": "chain", "inputs": {"input": "What is tea?"},
         "outputs": {"output": "A drink."}, "start_time": "2026-05-01T10:00:00", "feedback_stats": {}},
        {"id": "r2", "trace_id": "r1", "parent_run_id": "r1", "run_type": "llm", "inputs": {"messages": [[human]]},
         "outputs": {"generations": [[{"text": "", "message": ai}]]}, "start_time": "2026-05-01T10:00:01",
         "extra": {"metadata": {"ls_model_name": "gpt", "thread_id": "th"}, "invocation_params": {"tools": []}}},
        {"id": "f1", "run_id": "r1", "key": "user_score", "score": 0.0, "value": None, "comment": "No.",
         "correction": None, "feedback_source": {"type": "api", "user_id": "ann"},
         "created_at": "2026-05-01T11:00:00+00:00", **feedback},
    ]  # fmt: skip
