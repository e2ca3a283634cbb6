"""What only Ollama's format has: prompts, models that are loaded and freed, and routes that manage them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ollama
import orjson
import pytest

from tests.support.inprocess import ratings
from tests.support.sdks import user, world
from tests.support.upstream import reply, stream

END = {"done": True, "done_reason": "stop", "prompt_eval_count": 5, "eval_count": 2}


def answer(**members: Any) -> bytes:
    return orjson.dumps({"model": "m", "created_at": "2026-01-01T00:00:00Z", "done": False, **members})


async def test_a_prompt(tmp_path: Path) -> None:
    lines = [answer(response="Hel"), answer(response="lo"), answer(response="", **END)]
    async with world(tmp_path, instructions=True) as here:
        here.unknown = stream([line + b"\n" for line in lines], content_type="application/x-ndjson")
        given = await here.ollama.generate("m", "Say hello.", system="Be kind.", stream=True)
        said = "".join([part.response or "" async for part in given])
        await here.http.post("/v1/feedback", json={"last": True, "rating": "bad", "comment": "be brief"})
        here.unknown = reply(answer(response="Hi", **END))
        whole = await here.ollama.generate("m", "Say hi.", system="Be kind.")
        for streamed in (True, False):
            got: Any = await here.ollama.generate("m", "/rl help", stream=streamed)
            text = "".join([part.response async for part in got]) if streamed else got.response
            assert text.startswith("burnish: rate the last answer")
        first, second = await here.logged()
        assert len(await ratings(here.http)) == 1
    assert said == first["reply"]["content"] == "Hello"
    assert first["messages"] == [{"role": "system", "content": "Be kind."}, user("Say hello.")]
    assert (first["surface"], first["prompt_tokens"]) == ("ollama_generate", 5)
    assert (whole.response, second["reply"]["content"]) == ("Hi", "Hi")
    asked = here.upstream.requests[1].json()["system"]
    assert asked.startswith("Be kind.\n\n")
    assert "be brief" in asked


async def test_its_other_routes_pass_and_those_that_manage_do_not(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        here.unknown = reply(b'{"models": [], "model_info": {}, "embeddings": [], "version": "0.33.0"}')
        assert (await here.ollama.list()).models == []
        assert (await here.ollama.ps()).models == []
        await here.ollama.show("m")
        assert (await here.ollama.embed("m", "Hi")).embeddings == []
        assert (await here.http.get("/api/version")).json()["version"] == "0.33.0"
        for manage in (here.ollama.pull, here.ollama.delete):
            with pytest.raises(ollama.ResponseError, match=r"^/api/") as caught:
                await manage("m")
            assert caught.value.status_code == 403
        assert await here.logged() == []
    paths = ["/api/tags", "/api/ps", "/api/show", "/api/embed", "/api/version"]
    assert [request.target for request in here.upstream.requests] == paths
