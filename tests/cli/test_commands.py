"""The program as a person uses it: real processes, a real running burnish, the small model."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from tests.support.burnish import Burnish
from tests.support.inprocess import behind, serving
from tests.support.program import NOBODY, ask, call, said
from tests.support.upstream import reply, upstream


def test_rating_the_last_answer_and_taking_it_back(burnish: Burnish) -> None:
    completion = ask(burnish.url)
    assert said("good", url=burnish.url)["completion_id"] == completion
    worse = said("bad", "too", "long", url=burnish.url)
    assert (worse["completion_id"], worse["reward"], worse["comment"]) == (completion, -1.0, "too long")
    latest = said("history", "-n", "1", url=burnish.url)["data"][0]
    assert (latest["id"], latest["rating"]) == (completion, -1.0)
    assert said("undo", url=burnish.url)["id"] == worse["id"]
    likert = said("rate", completion, "4", "short, but it will do", url=burnish.url)
    assert (likert["reward"], likert["scale"], likert["comment"]) == (0.5, "likert", "short, but it will do")
    assert said("rate", "last", "-0.5", url=burnish.url)["reward"] == -0.5, "it isn't an option"


def test_the_same_for_people(burnish: Burnish) -> None:
    ask(burnish.url)
    assert "rated good" in call("good", url=burnish.url).stdout
    ask(burnish.url, "What is coffee?")
    assert "rated bad" in call("bad", url=burnish.url).stdout
    assert "good" in call("history", url=burnish.url).stdout
    status = call("status", url=burnish.url).stdout
    assert "smollm2" in status
    assert "the schedule is manual: start a run with `burnish train`" in " ".join(status.split())
    assert "base model" in call("adapters", "list", url=burnish.url).stdout
    assert "live now: base" in call("adapters", "rollback", "base", url=burnish.url).stdout
    assert said("adapters", "show", "base", url=burnish.url)["version"] == 0
    assert "would" in call("train", "--dry-run", url=burnish.url).stdout
    untrained = {"BURNISH_TRAIN__ENABLED": "false"}  # without the check that torch loads, which takes seconds
    assert f"proxy         ok at {burnish.url}" in call("doctor", url=burnish.url, env=untrained).stdout


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("rate", "cmpl_nothing", "good"), 1, "cmpl_nothing"),
        (("rate", "last", "6"), 2, "1 to 5, not 6: 1 Terrible"),
        (("rate", "last", "0"), 2, "1 to 5, not 0: 1 Terrible"),
        (("rate", "last", "lovely"), 2, "lovely"),
        (("rate", "last", "nan"), 2, "nan"),
        (("rate", "last", "-1.5"), 2, "-1.5"),
        (("rate", "", "good"), 2, "isn't an ID"),
        (("rate", "../status", "good"), 2, "../status"),
        (("rate", "?limit=1", "good"), 1, "?limit=1"),
        (("undo", "?"), 1, "'?'"),
        (("adapters", "show", "7"), 1, "7"),
        (("adapters", "promote", "seven"), 2, "seven"),
        (("undo", "fb_nothing"), 1, "fb_nothing"),
        (("nonsense",), 2, "nonsense"),
        (("history", "-n", "0"), 2, "limit"),
        (("demo", "--half", "grades"), 2, "comments"),
        (("status", "--url", "nonsense"), 2, "'nonsense' isn't a URL"),
        (("status", "--url", "http://ann:geheim@127.0.0.1"), 2, "BURNISH_API_KEY"),
        (("status", "--url", "http://[::1"), 2, "'http://[::1' isn't a URL"),
        (("status", "--url", "ftp://127.0.0.1"), 2, "'ftp://127.0.0.1' isn't a URL"),
    ],
)
def test_a_fault_has_an_exit_code(burnish: Burnish, arguments: tuple[str, ...], code: int, says: str) -> None:
    done = call(*arguments, url=burnish.url)
    assert done.returncode == code, done.stderr
    assert says in done.stderr
    assert not re.search("Traceback|scale|geheim", done.stderr)
    assert done.stdout == ""


@pytest.mark.parametrize("arguments", [("status",), ("good",), ("train",), ("adapters", "list"), ("chat",)])
def test_without_burnish_the_exit_code_is_three(arguments: tuple[str, ...]) -> None:
    done = call(*arguments, url=NOBODY)
    assert done.returncode == 3
    assert "burnish up" in done.stderr


@pytest.mark.parametrize("content", [b"[1]", b"{}", b"<html>"])
async def test_a_server_that_is_no_burnish_is_called_so(content: bytes) -> None:
    async with upstream(reply(content)) as other:
        for command in (("rate", "cmpl_1", "good"), ("status",)):
            done = await asyncio.to_thread(call, *command, url=other.url)
            assert "isn't burnish" in done.stderr
            assert done.returncode == 3


def test_a_wrong_setting_is_wrong_usage_for_every_command() -> None:
    for command in ("status", "up"):
        done = call(command, env={"BURNISH_PORT": "many"})
        assert (done.returncode, done.stdout) == (2, "")
        assert "many" in done.stderr


def test_commands_use_no_web_proxy_and_accept_the_url_of_clients(burnish: Burnish) -> None:
    away = {"HTTP_PROXY": NOBODY, "http_proxy": NOBODY, "NO_PROXY": "", "no_proxy": ""}
    assert call("status", url=burnish.url + "/v1/", env=away).returncode == 0


def test_history_is_readable_on_a_narrow_terminal_and_has_pages(burnish: Burnish) -> None:
    question = "What is [tea] {} :cat: and where does it come from?"
    ids = [ask(burnish.url, question.format(number)) for number in (1, 2)]
    shown = call("history", "-n", "1", url=burnish.url, env={"COLUMNS": "60"}).stdout
    assert ids[1] in shown
    assert "[tea]" in shown
    assert f"--before {ids[1]}" in shown
    before = said("history", "-n", "1", "--before", ids[1], url=burnish.url)
    assert [each["id"] for each in before["data"]] == [ids[0]]
    assert ":cat:" in call("history", "-n", "1", url=burnish.url).stdout


def test_history_marks_an_answer_that_holds_a_key(burnish: Burnish) -> None:
    ask(burnish.url, "Use gh" + "p_abcdefghijklmnopqrstuvwxyz0123456789.")
    assert "holds a key or token" in call("history", "-n", "1", url=burnish.url).stdout
    ask(burnish.url, "What is tea?")
    assert "holds a key or token" not in call("history", "-n", "1", url=burnish.url).stdout


async def test_where_nothing_can_be_swapped_the_commands_say_so(tmp_path: Path) -> None:
    async with upstream(reply(b"{}")) as other, serving(tmp_path, upstream=other.url) as (url, _):
        for command in (("train",), ("adapters", "list"), ("adapters", "promote", "1")):
            done = await asyncio.to_thread(call, *command, url=url)
            assert "versions are not swapped" in done.stderr
            assert done.returncode == 1


async def test_what_was_passed_through_is_listed_by_itself(tmp_path: Path) -> None:
    async with behind(tmp_path, reply(b'{"usage":{"prompt_tokens":7}}')) as (client, _):
        url = str(client.base_url)
        for path in ("/v1/embeddings", "/v1/images/[bold]"):
            await client.post(path, json={"model": "small", "input": "x" * 2000})
        listed = (await asyncio.to_thread(call, "history", "--passthrough", "-n", "1", url=url)).stdout
        older = ("history", "--passthrough", "--before", listed.split()[0])
        rest = await asyncio.to_thread(said, *older, url=url)
        status = (await asyncio.to_thread(call, "status", url=url)).stdout
        wrong = await asyncio.to_thread(call, "history", "--passthrough", "--conversation", "conv_1", url=url)
    assert "POST /v1/images/[bold]  200" in listed
    assert "2.0 kB → 29 bytes  7 tokens  small" in listed
    assert [each["path"] for each in rest["data"]] == ["/v1/embeddings"]
    assert "2 other requests passed through" in status
    assert (wrong.returncode, "conversation" in wrong.stderr) == (2, True)
