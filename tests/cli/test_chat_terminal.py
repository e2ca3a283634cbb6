"""The chat on a terminal: what is drawn, which keys do what, and what is kept."""

from __future__ import annotations

import asyncio
import signal
import stat
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.cli.test_hostile_text import HOSTILE
from tests.support import chat_wire
from tests.support.emulator import Emulator, emulated
from tests.support.inprocess import serving
from tests.support.patience import within
from tests.support.upstream import Received, Script, Upstream, stream, upstream

ALT_ENTER = "\x1b\r"
CTRL_C, CTRL_D, CTRL_U = "\x03", "\x04", "\x15"
UP = "\x1b[A"
NUMBERS = [f"w{number}" for number in range(400)]
CODE = ["def f():", "\treturn [", *(f"        {number}," for number in range(30)), "    ]"]
LONG_LINE = "# " + " ".join(f"c{number}" for number in range(60))


def saying(*messages: dict[str, Any], size: int = 7) -> Script:
    """Answer with these messages in turn, and with the last one from then on."""
    left = list(messages)

    async def script(request: Received, writer: asyncio.StreamWriter) -> None:
        message = left.pop(0) if len(left) > 1 else left[0]
        await stream(chat_wire.chunks(chat_wire.whole(message), size))(request, writer)

    return script


@asynccontextmanager
async def burnish(script: Script, tmp_path: Path) -> AsyncIterator[tuple[str, Upstream]]:
    async with upstream(script) as server, serving(tmp_path, upstream=server.url, model="mock") as (url, _):
        yield url, server


async def on_screen(
    url: str, user: Callable[[Emulator], None], *options: str, rows: int = 24, columns: int = 80, **env: str
) -> Emulator:
    """Let a user chat to the end; return the screen."""

    def run() -> Emulator:
        given = {"BURNISH_URL": url, **env}
        with emulated("chat", *options, rows=rows, columns=columns, env=given) as screen:
            screen.prompt("you ›")
            user(screen)
            assert screen.process.wait(within(30)) == 0
            return screen

    return await asyncio.to_thread(run)


PROMPTS = ("you ›", "rate ›", "why ›")


def typing(*steps: tuple[str, ...]) -> Callable[[Emulator], None]:
    """Return a user; a step is what is typed, and the prompts and texts that are then waited for."""

    def user(screen: Emulator) -> None:
        for keys, *texts in steps:
            screen.press(keys)
            for text in texts:
                (screen.prompt if text in PROMPTS else screen.until)(text)

    return user


ONCE = typing(("Go\r", "rate ›"), (CTRL_D,))


def asked(server: Upstream) -> list[str]:
    return [request.json()["messages"][-1]["content"] for request in server.requests if request.body]


@pytest.mark.parametrize("columns", [60, 80])
async def test_an_answer_longer_than_the_screen_is_drawn_whole_and_once(tmp_path: Path, columns: int) -> None:
    parts = [
        "# A title",
        " ".join(NUMBERS),
        "\n".join(f"{number}. **item** `i{number}` 漢字 🎉 👩‍🔬" for number in range(1, 41)),
        "\n".join(["```python", *CODE, LONG_LINE, "```"]),
        "| a | b |\n|---|---|\n| left | List<int> |",
        "Roses are red\nViolets are blue <b>!</b>",
        "See [here](http://127.0.0.1/there) and ![a picture](http://127.0.0.1/x.png).\n\n[1]: http://127.0.0.1/note",
    ]

    async with burnish(saying({"content": "\n\n".join(parts)}), tmp_path) as (url, _):
        screen = await on_screen(url, ONCE, columns=columns)
    lines = screen.lines()
    words = screen.text().split()
    assert [word for word in words if word.startswith("w") and word[1:].isdigit()] == NUMBERS
    items = [word for word in words if word[0] == "i" and word[1:].isdigit()]
    assert items == [f"i{number}" for number in range(1, 41)]
    start = lines.index("def f():")
    assert lines[start : start + len(CODE)] == [line.expandtabs() for line in CODE], "code can be copied"
    rest = lines[start + len(CODE) :]
    height = -(-len(LONG_LINE) // columns)
    broken = [line.ljust(columns) for line in rest[:height]]
    assert "".join(broken).rstrip() == LONG_LINE, "the terminal breaks a long line, nobody else"
    for text in (
        "List<int>",
        "Violets are blue <b>!</b>",
        "here (http://127.0.0.1/there)",
        "/x.png",
        "/note",
    ):
        assert text in screen.text()
    assert "Roses are red\n" in screen.text()


async def test_reasoning_is_dim_and_comes_before_the_answer(tmp_path: Path) -> None:
    thoughts = "Let me think.\n\n" + " ".join(NUMBERS)

    message = {"reasoning_content": thoughts, "content": "It is **tea**."}
    async with burnish(saying(message), tmp_path) as (url, _):
        screen = await on_screen(url, ONCE)
    text = screen.text()
    assert text.index("thinking ›") < text.index("Let me think.") < text.index("w399") < text.index("model ›")
    assert [word for word in text.split() if word[0] == "w" and word[1:].isdigit()] == NUMBERS
    assert "\x1b[2mLet me think." in screen.raw
    assert "\x1b[1mtea" in screen.raw


async def test_hostile_text_steers_no_terminal(tmp_path: Path) -> None:
    text = f"{HOSTILE} [click](http://127.0.0.1/evil)\n\n```{HOSTILE}\n{HOSTILE}\n```"

    async with burnish(saying({"reasoning": HOSTILE, "content": text}, size=1), tmp_path) as (url, _):
        screen = await on_screen(url, ONCE)
    for sequence in ("\x1b]", "\x1b[2J", "\x9b", "\u202e", "\u2066"):
        assert sequence not in screen.raw
    assert "[red]markup[/red]" in screen.text()


async def test_keys_and_commands(tmp_path: Path) -> None:
    user = typing(
        ("one\\\rtwo" + ALT_ENTER + "three\r", "rate ›"),
        ("\x1b[200~pasted\nlines\x1b[201~", "\n       lines"),
        ("\r", "(an empty answer)", "rate ›"),
        ("c\r", "why ›"),
        ("too dull\r", "comment saved: “too dull”", "you ›"),
        ("/nonsense\r", "there is no command /nonsense", "you ›"),
        ("/rl good\r", "burnish › rated good", "you ›"),
        ("never mind" + CTRL_C, "Ctrl-D or /exit ends the chat"),
        ("/exit\r",),
    )
    nothing_to_see = {"content": "\n"}
    async with burnish(saying({"content": "Hello!"}, nothing_to_see), tmp_path) as (url, server):
        await on_screen(url, user)
        async with httpx.AsyncClient(base_url=url, timeout=within(60)) as client:
            given = (await client.get("/v1/feedback")).json()["data"]
    assert asked(server) == ["one\ntwo\nthree", "pasted\nlines"]
    assert [(each["comment"], each["reward"]) for each in given] == [(None, 1.0), ("too dull", None)]
    (previous,) = server.requests[-1].json()["messages"][1:-1]
    assert previous == {"role": "assistant", "content": "Hello!"}


async def test_one_key_rates_and_any_other_begins_the_next_message(tmp_path: Path) -> None:
    def user(screen: Emulator) -> None:
        screen.press("Hi\r")
        screen.prompt("rate ›")
        screen.press("b")
        screen.until("rated bad")
        screen.prompt("you ›")
        screen.press("And you?\r")
        screen.prompt("rate ›")
        screen.press("what big eyes\r")
        screen.until("model ›", times=3)
        screen.prompt("rate ›")
        screen.press(CTRL_C)
        screen.prompt("you ›")
        screen.press(CTRL_D)

    async with burnish(saying({"content": "Hello!"}), tmp_path) as (url, server):
        await on_screen(url, user, "--rate", "key")
        async with httpx.AsyncClient(base_url=url, timeout=within(60)) as client:
            (rated,) = (await client.get("/v1/feedback")).json()["data"]
    assert asked(server) == ["Hi", "And you?", "what big eyes"]
    assert rated["reward"] == -1.0


async def test_messages_are_found_again_in_the_next_chat_and_are_private(tmp_path: Path) -> None:
    first = typing(("What is tea?\r", "rate ›"), ("g\r", "rated good", "you ›"), (CTRL_D,))
    second = typing((UP, "you › What is tea?"), (" Again.\r", "rate ›"), (CTRL_D,))
    data = tmp_path / "own"
    async with burnish(saying({"content": "Hello!"}), tmp_path) as (url, server):
        await on_screen(url, first, BURNISH_DATA_DIR=str(data))
        await on_screen(url, second, BURNISH_DATA_DIR=str(data))
    assert asked(server) == ["What is tea?", "What is tea? Again."]
    assert stat.S_IMODE((data / "chat_history").stat().st_mode) == 0o600


async def test_a_long_history_forgets_its_older_half_and_keeps_whole_messages(tmp_path: Path) -> None:
    user = typing((UP, "you › the newest"), ("\r", "rate ›"), (CTRL_D,))
    (data := tmp_path / "own").mkdir()
    entries = [f"\n# 2026-11-25\n+{'x' * 1000}\n+\n+{number}\n" for number in range(1100)]
    (history := data / "chat_history").write_text("".join(entries) + "\n# 2026-11-25\n+the newest\n")
    async with burnish(saying({"content": "Hello!"}), tmp_path) as (url, server):
        await on_screen(url, user, BURNISH_DATA_DIR=str(data))
    assert asked(server) == ["the newest"]
    kept = history.read_text()
    assert 400_000 < len(kept) < 600_000
    assert kept.startswith("# 2026") and kept.count("x" * 1000) == kept.count("# 2026") - 2


async def test_a_history_that_cannot_be_written_is_said_and_the_chat_goes_on(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.touch()

    user = typing(("", "what you type isn't kept"), ("Hi\r", "rate ›"), (CTRL_D,))
    async with burnish(saying({"content": "Hello!"}), tmp_path) as (url, server):
        await on_screen(url, user, BURNISH_DATA_DIR=str(blocked / "data"))
    assert asked(server) == ["Hi"]


async def test_ctrl_c_cuts_an_answer_which_stays_and_can_be_rated(tmp_path: Path) -> None:
    held = asyncio.Event()
    begun = chat_wire.chunks(chat_wire.whole({"content": "Once upon a time"}))[:4]

    def user(screen: Emulator) -> None:
        screen.press("A story\r")
        screen.until("Once")
        screen.press("typed ahead")
        screen.process.send_signal(signal.SIGINT)
        screen.until("(stopped)")
        screen.prompt("rate ›")
        screen.press(CTRL_U + "b too long\r")
        screen.until("nothing will be learnt from it")
        screen.prompt("you ›")
        screen.press("Go on\r")
        screen.until("model ›", times=2)
        screen.until("Once", times=2)
        screen.process.send_signal(signal.SIGINT)
        screen.prompt("rate ›")
        screen.press(CTRL_D)

    async with burnish(stream([*begun, b""], hold=held), tmp_path) as (url, server):
        screen = await on_screen(url, user)
        async with httpx.AsyncClient(base_url=url, timeout=within(60)) as client:
            (rated,) = (await client.get("/v1/feedback")).json()["data"]
            cut = (await client.get(f"/burnish/completions/{rated['completion_id']}")).json()
    assert (rated["comment"], cut["outcome"]) == ("too long", "cancelled")
    assert "typed ahead" not in screen.text().partition("(stopped)")[0]
    kept = server.requests[-1].json()["messages"]
    assert [message["role"] for message in kept] == ["user", "assistant", "user"]
    assert kept[1]["content"].startswith("Once")
