"""``burnish chat``: talk to the model and rate each answer."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Annotated, Any

import typer

from burnish.proxy.cli.client import Proxy
from burnish.proxy.cli.errors import CommandFailed, WrongUsage
from burnish.proxy.cli.rate import read_rating
from burnish.proxy.cli.terminal import Url, console, verdict

QUESTION = (
    "[dim]rate: [/][green]g[/][dim]ood  [/][red]b[/][dim]ad  1–5, a comment may follow; enter skips:[/] "
)
HELP = "[dim]type a message; /new starts over, /undo takes the last rating back, /quit (or Ctrl-D) ends[/]"
SHORT = {"g": "good", "b": "bad", "+": "good", "-": "bad"}


@dataclass
class _Talk:
    proxy: Proxy
    model: str
    system: str | None
    messages: list[dict[str, str]] = field(default_factory=list)
    last_rating: str | None = None

    def restart(self) -> None:
        self.messages = [{"role": "system", "content": self.system}] if self.system else []


def chat(
    model: Annotated[str, typer.Option(help="Model to talk to.")] = "default",
    system: Annotated[str | None, typer.Option(help="System message of the conversation.")] = None,
    url: Url = None,
) -> None:
    """Talk to the model; after each answer it asks for a rating."""
    talk = _Talk(Proxy(url), model, system)
    talk.restart()
    talk.proxy.get("/burnish/status")  # say at once when nobody is there
    console.print(HELP)
    while (text := _read("\n[bold cyan]you ›[/] ")) not in (None, "/quit", "/q"):
        if text == "/new":
            talk.restart()
        elif text == "/undo":
            _undo(talk)
        elif text:
            try:
                completion = _answer(talk, str(text))
            except CommandFailed as error:
                talk.messages.pop()
                console.print(f"[red]{error}[/]")
                continue
            if not str(text).startswith("/rl") and not _rate(talk, completion):
                break


def _answer(talk: _Talk, text: str) -> str | None:
    """Stream the answer to the terminal; return its completion id."""
    talk.messages.append({"role": "user", "content": text})
    said: list[str] = []
    body = {"model": talk.model, "messages": talk.messages, "stream": True}
    with talk.proxy.stream("/v1/chat/completions", body) as response:
        completion: str | None = response.headers.get("x-burnish-completion-id")
        console.print("[bold]model ›[/] ", end="")
        for line in response.iter_lines():
            if part := _content(line):
                said.append(part)
                console.print(part, end="", markup=False)
    console.print()
    talk.messages.append({"role": "assistant", "content": "".join(said)})
    return completion


def _content(line: str) -> str:
    """Return the text in one line of an event stream."""
    if not line.startswith("data: {"):
        return ""
    event: dict[str, Any] = json.loads(line.removeprefix("data: "))
    if "error" in event:
        raise CommandFailed(str(event["error"].get("message", event["error"])))
    choices = event.get("choices") or [{}]
    return str(choices[0].get("delta", {}).get("content") or "")


def _rate(talk: _Talk, completion: str | None) -> bool:
    """Ask for a rating until it is understood or skipped; False when the person leaves."""
    while completion is not None:
        typed = _read(QUESTION)
        if typed is None or typed in ("/quit", "/q"):
            return False
        if not typed:
            return True
        word, _, comment = typed.partition(" ")
        try:
            said = read_rating(SHORT.get(word, word))
            record = talk.proxy.post(
                "/v1/feedback", {"completion_id": completion, **said, "comment": comment.strip() or None}
            )
        except WrongUsage as error:
            console.print(f"[red]{error}[/]")
            continue
        talk.last_rating = record["id"]
        console.print(f"[dim]rated[/] {verdict(record['reward'])}")
        return True
    return True


def _undo(talk: _Talk) -> None:
    if talk.last_rating is None:
        console.print("[dim]nothing to take back[/]")
        return
    talk.proxy.delete(f"/v1/feedback/{talk.last_rating}")
    talk.last_rating = None
    console.print("[dim]taken back[/]")


def _read(prompt: str) -> str | None:
    """Read a line; None at the end of the input."""
    try:
        return console.input(prompt).strip()
    except EOFError:
        console.print()
        return None
