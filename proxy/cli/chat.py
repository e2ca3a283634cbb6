"""``burnish chat``: talk to the model and rate each answer."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any

import typer
from rich.markup import escape

from burnish.proxy.cli.client import Proxy
from burnish.proxy.cli.errors import CommandFailed, NotRunning, WrongUsage
from burnish.proxy.cli.rate import read_rating, teaching
from burnish.proxy.cli.terminal import Url, console, ctrl_c, verdict
from burnish.proxy.records import counting_in_words
from burnish.proxy.surfaces.sse import SseParser

QUESTION = "[dim]rate ([/][green]g[/][dim]ood, [/][red]b[/][dim]ad, 1–5, c comment, u undo, q quit, enter skips):[/] "
HELP = (
    "[dim]type a message; /new starts over, /undo takes back the last rating, /quit (or Ctrl-D) ends, "
    "Ctrl-C stops an answer[/]"
)
SHORT = {"g": "good", "b": "bad", "+": "good", "-": "bad"}
COMMENT = frozenset({"c", "comment"})
UNDO = frozenset({"u", "undo", "/undo"})
SKIP = frozenset({"", "s", "skip"})
QUIT = frozenset({"q", "quit", "/q", "/quit"})


@dataclass
class _Talk:
    proxy: Proxy
    model: str
    system: str | None
    max_tokens: int | None
    messages: list[dict[str, str]] = field(default_factory=list)
    last_rating: str | None = None

    def restart(self) -> None:
        self.messages = [{"role": "system", "content": self.system}] if self.system else []


def chat(
    model: Annotated[str, typer.Option(help="Model to talk to.")] = "default",
    system: Annotated[str | None, typer.Option(help="System message of the conversation.")] = None,
    max_tokens: Annotated[
        int | None,
        typer.Option(min=1, help="Longest answer, in tokens. A small model may never stop by itself."),
    ] = None,
    url: Url = None,
) -> None:
    talk = _Talk(Proxy(url), model, system, max_tokens)
    talk.restart()
    talk.proxy.get("/burnish/status")  # fail at once if burnish isn't running
    console.print(HELP)
    while (text := _read("\n[bold cyan]you ›[/] ")) not in (None, "/quit", "/q"):
        if text == "/new":
            talk.restart()
        elif text == "/undo":
            _undo(talk)
        elif text and not _turn(talk, text):
            break


def _turn(talk: _Talk, text: str) -> bool:
    """Send a message, show the answer and ask for a rating; False when the user quits."""
    talk.messages.append({"role": "user", "content": text})
    try:
        completion = _answer(talk)
    except NotRunning:
        raise
    except CommandFailed as error:
        talk.messages.pop()
        _complain(error)
        return True
    except KeyboardInterrupt:  # before any text
        talk.messages.pop()
        console.print("[dim](stopped)[/]")
        return True
    return text.startswith("/rl") or _rate(talk, completion)


def _answer(talk: _Talk) -> str | None:
    """Stream the answer to the terminal; return its completion ID. Ctrl-C keeps the text so far."""
    texts: list[str] = []
    body: dict[str, Any] = {"model": talk.model, "messages": talk.messages, "stream": True}
    if talk.max_tokens:
        body["max_tokens"] = talk.max_tokens
    with ctrl_c() as pressed, talk.proxy.stream("/v1/chat/completions", body) as response:
        completion: str | None = response.headers.get("x-burnish-completion-id")
        try:
            console.print("[bold]model ›[/] ", end="")
            for part in _parts(talk.proxy.chunks(response)):
                texts.append(part)
                console.out(part, end="", highlight=False)
                if pressed.is_set():
                    raise KeyboardInterrupt
        except KeyboardInterrupt:
            if not texts:
                raise
            console.print(" [dim](stopped)[/]", end="")
        finally:
            console.print()
    talk.messages.append({"role": "assistant", "content": "".join(texts)})
    return completion


def _parts(chunks: Iterable[bytes]) -> Iterator[str]:
    """Read the texts of an event stream as they arrive. Raises CommandFailed for an error in the stream."""
    parser = SseParser()
    for chunk in chunks:
        for event in parser.feed(chunk):
            if event.data != "[DONE]" and (part := _content(event.data)):
                yield part


def _content(text: str) -> str:
    try:
        event: dict[str, Any] = json.loads(text)
        if error := event.get("error"):
            raise CommandFailed(str(error.get("message", error)))
        choices = event.get("choices") or [{}]
        return str(choices[0].get("delta", {}).get("content") or "")
    except (ValueError, AttributeError, LookupError) as error:
        raise CommandFailed(f"expected a chunk of a chat completion, got: {text[:80]}") from error


def _rate(talk: _Talk, completion: str | None) -> bool:
    """Ask until the rating is valid or skipped; False when the user quits."""
    while completion is not None:
        typed = _read(QUESTION)
        if typed is None or typed in QUIT:
            return False
        if typed in SKIP:
            return True
        if typed in UNDO:
            _undo(talk)
            continue
        try:
            record = talk.proxy.post("/v1/feedback", {"completion_id": completion, **_feedback(typed)})
        except NotRunning:
            raise
        except CommandFailed as error:
            _complain(error)
            continue
        talk.last_rating = record["id"]
        said = verdict(record["reward"], record["scale"])
        console.print((f"[dim]rated[/] {said}" if said else "[dim]comment saved[/]") + teaching(record))
        return True
    return True


def _feedback(typed: str) -> dict[str, Any]:
    """Turn a typed rating into fields of a feedback request. Raises WrongUsage."""
    word, _, rest = typed.partition(" ")
    comment = rest.strip() or None
    if word not in COMMENT:
        return read_rating(SHORT.get(word, word)) | {"comment": comment}
    if comment is None:
        raise WrongUsage("a comment needs words, for example: c too long")
    return {"comment": comment}


def _undo(talk: _Talk) -> None:
    if talk.last_rating is None:
        console.print("[dim]there is no rating to take back[/]")
        return
    undone = talk.proxy.delete(f"/v1/feedback/{talk.last_rating}")
    talk.last_rating = None
    console.print(f"[dim]taken back; {counting_in_words(undone['rated'])}[/]")


def _complain(error: CommandFailed) -> None:
    console.print(f"[red]{escape(str(error))}[/]")


def _read(prompt: str) -> str | None:
    """Read a line; None at the end of the input."""
    try:
        line = console.input(prompt).strip()
    except EOFError:
        console.print()
        return None
    if not sys.stdin.isatty():  # a terminal would have shown it
        console.print(escape(line))
    return line
