"""What only Anthropic's format has: counts of tokens, its beta route, and two places for a key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anthropic
import pytest
from anthropic import AsyncAnthropic

from tests.support.sdks import user, world
from tests.support.upstream import reply

RAIN = {"content": "Rain."}


async def test_default_means_the_upstreams_own_model_also_where_tokens_are_counted(tmp_path: Path) -> None:
    async with world(tmp_path, RAIN, native=True) as here:
        here.models = [{"id": "their-model"}]
        here.unknown = reply(b'{"input_tokens":3}')
        count = await here.anthropic.messages.count_tokens(model="default", messages=[user("How long?")])
        assert (count.input_tokens, await here.logged()) == (3, [])
        await here.anthropic.beta.messages.create(
            max_tokens=9, model="default", messages=[user("Hi.")], extra_query={"beta": "true"}
        )
        (record,) = await here.logged()
    assert (record["model_served"], record["reply"]["content"]) == ("their-model", "Rain.")
    asked = [request for request in here.upstream.requests if request.method == "POST"]
    assert [request.json()["model"] for request in asked] == ["their-model", "their-model"]
    assert [request.target for request in asked] == ["/v1/messages/count_tokens", "/v1/messages?beta=true"]


async def test_errors_are_the_clients_own(tmp_path: Path) -> None:
    async with world(tmp_path, native=True, max_body_bytes=4096) as here:
        here.unknown = reply(b'{"data": []}')
        messages = here.anthropic.messages
        calls: Any = ((messages.count_tokens, {}), (messages.create, {"max_tokens": 5}))
        for call, more in calls:
            with pytest.raises(anthropic.NotFoundError) as missing:
                await call(model="default", messages=[user("Hi.")], **more)
            assert missing.value.type == "not_found_error"
            with pytest.raises(anthropic.RequestTooLargeError):
                await call(model="mock", messages=[user("x" * 5000)], **more)


@pytest.mark.parametrize("header", ["x-api-key", "authorization"])
async def test_a_key_of_burnish_is_taken_where_clients_put_it_and_kept(tmp_path: Path, header: str) -> None:
    flags = {"api_key": "geheim", "upstream_api_key": "sk-ours"}
    async with world(tmp_path, RAIN, native=True, **flags) as here:
        for key in ("wrong", "geheim"):
            headers = {header: key if header == "x-api-key" else f"Bearer {key}"}
            async with AsyncAnthropic(base_url=here.url, default_headers=headers, max_retries=0) as sdk:
                asking = sdk.messages.create(model="mock", max_tokens=50, messages=[user("Hi.")])
                if key == "geheim":
                    assert (await asking).content[0].text == "Rain."
                    continue
                with pytest.raises(anthropic.AuthenticationError) as refused:
                    await asking
                assert refused.value.type == "authentication_error"
    (request,) = here.upstream.requests
    assert (request.header("x-api-key"), request.header("authorization")) == ("sk-ours", "Bearer sk-ours")
    assert "geheim" not in str(request)
