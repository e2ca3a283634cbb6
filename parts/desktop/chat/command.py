"""The command: its options, and the loop of messages, answers and ratings."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from burnish.config.config import Config
from burnish.config.model_names import DEFAULT_MODEL
from burnish.parts.desktop.chat.answers import LiveAnswer, PlainAnswer
from burnish.parts.desktop.chat.input import (
    COMMENT,
    SKIP,
    UNDO,
    Keyboard,
    LineKeyboard,
    command_help,
    command_name,
    is_rl,
    off_the_scale,
    rating_outcome,
    read_rating,
    resembles_rating,
    unknown_command,
)
from burnish.parts.desktop.chat.talk import Talk
from burnish.proxy.records import counting_in_words
from burnish.terminal.client import Proxy, read_settings
from burnish.terminal.errors import CommandFailed, NotRunning
from burnish.terminal.terminal import Url, console, ctrl_c, unechoed

BURNISH = "burnish: "
"""How burnish's own answers begin."""


def chat(
    model: Annotated[str, typer.Option(help="Model to talk to.")] = "default",
    system: Annotated[str | None, typer.Option(help="System message of the conversation.")] = None,
    temperature: Annotated[float | None, typer.Option(help="0 to 2; 0: always the likeliest word.")] = None,
    top_p: Annotated[float | None, typer.Option(help="Above 0, up to 1.")] = None,
    top_k: Annotated[int | None, typer.Option(help="1 or more.")] = None,
    max_tokens: Annotated[
        int | None,
        typer.Option(
            help="Longest answer, in tokens. Default: 512 for a small embedded model, which may never stop by itself."
        ),
    ] = None,
    rate: Annotated[
        str | None,
        typer.Option(
            help="Ask for a rating after each answer: line (a letter and Enter), key (one press), or off."
        ),
    ] = None,
    url: Url = None,
) -> None:
    """Type /help for the commands of the chat. Defaults of these options are in the table [chat] of the configuration.
    Your messages are kept in chat_history in the data directory, for the arrow keys.
    """
    flags = {
        "temperature": temperature,
        "top_p": top_p,
        "top_k": top_k,
        "max_tokens": max_tokens,
        "rate": rate,
    }
    config = read_settings(
        {"chat": {name: setting for name, setting in flags.items() if setting is not None}}
    )
    sampling = config.chat.model_dump(exclude={"rate"}, exclude_none=True)
    proxy = Proxy(url)
    state = proxy.get("/burnish/status")  # fail at once if burnish isn't running
    if model == DEFAULT_MODEL and (longest := state["engine"].get("longest_answer")):
        sampling = {"max_tokens": longest} | sampling
    answers = model if model != DEFAULT_MODEL else state["live"]["name"] or state["upstream"]
    limit = (
        f"; an answer has at most {tokens} tokens (--max-tokens)"
        if (tokens := sampling.get("max_tokens"))
        else ""
    )
    console.print(
        f"[dim]{escape(answers)} answers, through burnish at {escape(proxy.url)}{limit}[/]", soft_wrap=True
    )
    talk = Talk(proxy, model, system, sampling)
    _Chat(talk, config, state).run()


class _Chat:
    """The loop. On a terminal, answers are drawn as Markdown; elsewhere everything is plain lines."""

    def __init__(self, talk: Talk, config: Config, state: dict[str, Any]) -> None:
        self._talk = talk
        self._trains = state["learner"]["state"] != "off"
        self._instructs = bool(state["instructions"]["on"])
        self._rates = config.chat.rate != "off"
        self._drawn = sys.stdin.isatty() and console.is_terminal and not console.is_dumb_terminal
        self._keyboard: Keyboard = _editor(config) if self._drawn else LineKeyboard(console)

    def run(self) -> None:
        console.print("[dim]type a message; /help lists commands, Ctrl-D ends, Ctrl-C stops an answer[/]")
        typed: str | None = ""
        while typed is not None:
            typed = self._next(typed or self._message())

    def _message(self) -> str | None:
        while True:
            try:
                return self._keyboard.message()
            except KeyboardInterrupt:
                if not self._drawn:
                    raise
                console.print("[dim]Ctrl-D or /exit ends the chat[/]")

    def _next(self, typed: str | None) -> str | None:
        """Do what was typed; return what was typed after it, "" if nothing yet, None at the end."""
        if typed is None or not typed.strip():
            return typed and ""
        self._keyboard.remember(typed)
        try:
            if is_rl(typed):
                answer = self._talk.command(typed).removeprefix(BURNISH)
                console.print(f"[bold]burnish ›[/] {escape(answer)}")
            elif name := command_name(typed):
                return self._run(name)
            else:
                return self._ask(typed.strip())
        except NotRunning:
            raise
        except CommandFailed as error:
            console.print(f"[red]{escape(str(error))}[/]")
        except KeyboardInterrupt:  # before any text
            console.print("[dim](stopped)[/]")
        return ""

    def _run(self, name: str) -> str | None:
        if name == "/exit":
            return None
        if name == "/new":
            self._talk.restart()
            console.print("[dim]a new conversation[/]")
        elif name == "/undo":
            self._undo()
        elif name == "/help":
            console.print(f"[dim]{escape(command_help())}[/]")
        else:
            console.print(f"[yellow]{escape(unknown_command(name))}[/]")
        return ""

    def _ask(self, text: str) -> str | None:
        stopped = False
        with ctrl_c() as pressed, unechoed(), self._talk.asking(text) as answer:
            with (LiveAnswer if self._drawn else PlainAnswer).showing(console) as display:
                try:
                    for piece in answer:
                        with pressed.held():
                            display.add(piece)
                except KeyboardInterrupt:
                    stopped = True
        if stopped:
            console.print("[dim](stopped)[/]")
        elif not answer.text.strip():
            console.print("[dim](an empty answer)[/]")
        elif answer.finish == "length":
            console.print("[dim](cut off at the longest length: see --max-tokens)[/]")
        if not answer.text or not self._rates or answer.completion is None:
            return ""
        return self._rate(answer.completion)

    def _rate(self, completion: str) -> str | None:
        """Ask for a rating; return the message if one is typed instead, "" if not, None at the end."""
        while True:
            try:
                typed = self._keyboard.rating()
            except KeyboardInterrupt:
                if not self._drawn:
                    raise
                return ""
            if typed is None or typed.strip() == SKIP:
                return typed and ""
            word = typed.strip()
            if word == UNDO:
                self._undo()
                continue
            if wrong := off_the_scale(word):
                console.print(f"[yellow]{wrong}[/]")
                continue
            rating = self._comment() if word == COMMENT else read_rating(word)
            if rating is None:
                if resembles_rating(word):
                    console.print("[dim](sent as your next message; a rating with words is: b too long)[/]")
                return typed
            if rating:
                record = self._talk.rate(completion, rating)
                console.print(rating_outcome(record, trains=self._trains, instructs=self._instructs))
                return ""

    def _comment(self) -> dict[str, Any]:
        """Ask for the words of a comment; return {} if there are none."""
        words = (self._keyboard.why() or "").strip()
        if not words:
            console.print("[dim]no comment was saved[/]")
        return {"comment": words} if words else {}

    def _undo(self) -> None:
        undone = self._talk.undo()
        if undone is None:
            console.print("[dim]there is no rating to take back[/]")
        else:
            console.print(f"[dim]taken back; {counting_in_words(undone['rated'])}[/]")


def _editor(config: Config) -> Keyboard:
    from burnish.parts.desktop.chat.editor import Editor, open_history

    history = config.chat_history_file
    try:
        open_history(history)
    except OSError as error:
        console.print(
            f"[yellow]what you type isn't kept: cannot write {escape(str(history))}: {error.strerror}[/]"
        )
        history = Path(os.devnull)
    return Editor(history, one_key=config.chat.rate == "key")
