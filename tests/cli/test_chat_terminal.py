"""The chat on a terminal: what is drawn, which keys do what, and what is kept."""

from __future__ import annotations

import asyncio
import codecs
import os
import select
import signal
import stat
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyte
import pytest

from tests.cli.test_hostile_text import HOSTILE
from tests.support import chat_wire
from tests.support.inprocess import behind, ratings
from tests.support.patience import within
from tests.support.program import on_terminal
from tests.support.upstream import Script, Upstream, in_turn, stream

ALT_ENTER = "\x1b\r"
CTRL_C, CTRL_D, CTRL_U = "\x03", "\x04", "\x15"
UP = "\x1b[A"
NUMBERS = [f"w{number}" for number in range(400)]
CODE = ["def f():", "\treturn [", *(f"        {number}," for number in range(30)), "    ]"]
HELLO = {"content": "Hello!"}
ROWS, SCROLLBACK = 24, 10_000
LONG_LINE = "# " + " ".join(f"c{number}" for number in range(60))


class Emulator:
    """A terminal as a person sees it: its screen, and what scrolled away."""

    def __init__(self, descriptor: int, process: subprocess.Popen[bytes], columns: int) -> None:
        self.process = process
        self.raw = ""
        """All that came, with its escape sequences."""
        self._descriptor = descriptor
        self._screen = pyte.HistoryScreen(columns, ROWS, history=SCROLLBACK, ratio=0.5)
        self._stream = pyte.Stream(self._screen)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def press(self, keys: str) -> None:
        os.write(self._descriptor, keys.encode())

    def lines(self) -> list[str]:
        """Return what scrolled away and what is on the screen, without empty lines at the end."""
        columns = range(self._screen.columns)
        above = ["".join(line[x].data for x in columns).rstrip() for line in self._screen.history.top]
        shown = [*above, *(line.rstrip() for line in self._screen.display)]
        while shown and not shown[-1]:
            shown.pop()
        return shown

    def text(self) -> str:
        return "\n".join(self.lines())

    def until(self, text: str, times: int = 1) -> str:
        """Read until a text is there, so many times; return all that is there."""
        return self.wait(lambda: self.text().count(text) >= times, f"{text!r} × {times}")

    def prompt(self, prompt: str) -> str:
        """Read until the last line begins with a prompt; return all that is there."""
        return self.wait(lambda: self.lines()[-1:] and self.lines()[-1].startswith(prompt), prompt)

    def wait(self, there: Callable[[], object], what: str) -> str:
        limit_s = within(60)
        deadline = time.monotonic() + limit_s
        while not there():
            ready, _, _ = select.select([self._descriptor], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"waited {limit_s:.0f} s for {what}, got:\n{self.text()}"
            try:
                read = os.read(self._descriptor, 65_536)
            except OSError as error:  # nobody has the other end any more
                code = self.process.wait(within(10))
                words = f"waited for {what}, but it ended with code {code}:\n{self.text()}"
                raise AssertionError(words) from error
            text = self._decoder.decode(read)
            self.raw += text
            self._stream.feed(text)
        return self.text()


def saying(*messages: dict[str, Any], size: int = 7) -> Script:
    """Answer with these messages in turn, and with the last one from then on."""
    return in_turn(*(stream(chat_wire.chunks(chat_wire.whole(message), size)) for message in messages))


class Chat(NamedTuple):
    screen: Emulator
    server: Upstream
    ratings: list[dict[str, Any]]
    """Latest first."""
    rated: list[dict[str, Any]]
    """The completions that they rate."""

    @property
    def asked(self) -> list[str]:
        return [request.json()["messages"][-1]["content"] for request in self.server.requests if request.body]


async def chat(
    tmp_path: Path,
    script: Script,
    *users: Callable[[Emulator], None],
    options: Sequence[str] = (),
    columns: int = 80,
    **env: str,
) -> Chat:
    """Let users chat to the end, one after the other, with a scripted upstream behind a burnish of its own."""

    def run(url: str, user: Callable[[Emulator], None]) -> Emulator:
        ours = {"TERM": "xterm-256color", "COLUMNS": "", "LINES": "", "BURNISH_URL": url, **env}
        with on_terminal("chat", *options, env=ours, rows=ROWS, columns=columns) as (terminal, process):
            screen = Emulator(terminal.descriptor, process, columns)
            screen.prompt("you ›")
            user(screen)
            assert screen.process.wait(within(30)) == 0
            return screen

    async with behind(tmp_path, script, model="mock") as (http, server):
        screens = [await asyncio.to_thread(run, str(http.base_url), user) for user in users]
        given = await ratings(http)
        shown = [await http.get(f"/burnish/completions/{each['completion_id']}") for each in given]
        return Chat(screens[-1], server, given, [each.json() for each in shown])


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
    screen = (await chat(tmp_path, saying({"content": "\n\n".join(parts)}), ONCE, columns=columns)).screen
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
    screen = (await chat(tmp_path, saying(message), ONCE)).screen
    text = screen.text()
    assert text.index("thinking ›") < text.index("Let me think.") < text.index("w399") < text.index("model ›")
    assert [word for word in text.split() if word[0] == "w" and word[1:].isdigit()] == NUMBERS
    assert "\x1b[2mLet me think." in screen.raw
    assert "\x1b[1mtea" in screen.raw


async def test_hostile_text_steers_no_terminal(tmp_path: Path) -> None:
    text = f"{HOSTILE} [click](http://127.0.0.1/evil)\n\n```{HOSTILE}\n{HOSTILE}\n```"
    screen = (await chat(tmp_path, saying({"reasoning": HOSTILE, "content": text}, size=1), ONCE)).screen
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
    done = await chat(tmp_path, saying(HELLO, nothing_to_see), user)
    assert done.asked == ["one\ntwo\nthree", "pasted\nlines"]
    assert [(each["comment"], each["reward"]) for each in done.ratings] == [(None, 1.0), ("too dull", None)]
    (previous,) = done.server.requests[-1].json()["messages"][1:-1]
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

    done = await chat(tmp_path, saying(HELLO), user, options=["--rate", "key"])
    assert done.asked == ["Hi", "And you?", "what big eyes"]
    assert [each["reward"] for each in done.ratings] == [-1.0]


async def test_messages_are_found_again_in_the_next_chat_and_are_private(tmp_path: Path) -> None:
    first = typing(("What is tea?\r", "rate ›"), ("g\r", "rated good", "you ›"), (CTRL_D,))
    second = typing((UP, "you › What is tea?"), (" Again.\r", "rate ›"), (CTRL_D,))
    data = tmp_path / "own"
    done = await chat(tmp_path, saying(HELLO), first, second, BURNISH_DATA_DIR=str(data))
    assert done.asked == ["What is tea?", "What is tea? Again."]
    assert stat.S_IMODE((data / "chat_history").stat().st_mode) == 0o600


async def test_a_long_history_forgets_its_older_half_and_keeps_whole_messages(tmp_path: Path) -> None:
    user = typing((UP, "you › the newest"), ("\r", "rate ›"), (CTRL_D,))
    (data := tmp_path / "own").mkdir()
    entries = [f"\n# 2026-11-25\n+{'x' * 1000}\n+\n+{number}\n" for number in range(1100)]
    (history := data / "chat_history").write_text("".join(entries) + "\n# 2026-11-25\n+the newest\n")
    done = await chat(tmp_path, saying(HELLO), user, BURNISH_DATA_DIR=str(data))
    assert done.asked == ["the newest"]
    kept = history.read_text()
    assert 400_000 < len(kept) < 600_000
    assert kept.startswith("# 2026") and kept.count("x" * 1000) == kept.count("# 2026") - 2


async def test_a_history_that_cannot_be_written_is_said_and_the_chat_goes_on(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.touch()
    user = typing(("", "what you type isn't kept"), ("Hi\r", "rate ›"), (CTRL_D,))
    done = await chat(tmp_path, saying(HELLO), user, BURNISH_DATA_DIR=str(blocked / "data"))
    assert done.asked == ["Hi"]


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

    done = await chat(tmp_path, stream([*begun, b""], hold=held), user)
    assert [each["comment"] for each in done.ratings] == ["too long"]
    assert [each["outcome"] for each in done.rated] == ["cancelled"]
    assert "typed ahead" not in done.screen.text().partition("(stopped)")[0]
    kept = done.server.requests[-1].json()["messages"]
    assert [message["role"] for message in kept] == ["user", "assistant", "user"]
    assert kept[1]["content"].startswith("Once")
