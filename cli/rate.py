"""``burnish good | bad | rate | undo``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer
from rich.markup import escape

from burnish.proxy.records import LIKERT, LIKERT_IN_WORDS, Usability, counting_in_words
from burnish.terminal.client import Proxy, in_path
from burnish.terminal.errors import CommandFailed, WrongUsage
from burnish.terminal.terminal import Json, Url, console, printed_json, short, verdict

Comment = Annotated[list[str] | None, typer.Argument(help="Your reason, in words; quotes aren't needed.")]
Target = Annotated[
    str | None,
    typer.Option("--id", help="ID of the answer (burnish's or the upstream's); default: the last answer."),
]

DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be rated, and rate nothing.")]

WORDS = ("comment", "correction")
"""Members of feedback that say something without a rating."""


def _thumb(rating: str) -> Callable[..., None]:
    def command(
        comment: Comment = None,
        target: Target = None,
        dry_run: DryRun = False,
        url: Url = None,
        as_json: Json = False,
    ) -> None:
        _rate(Proxy(url), target, {"rating": rating, "dry_run": dry_run or None} | _why(comment), as_json)

    return command


good, bad = _thumb("good"), _thumb("bad")


def rate(
    target: Annotated[str, typer.Argument(metavar="ID", help="ID of the answer, or: last.")],
    rating: Annotated[
        str, typer.Argument(help=f"good, bad, 1 to 5 ({LIKERT_IN_WORDS}), or a number from -1.0 to 1.0.")
    ],
    comment: Comment = None,
    dry_run: DryRun = False,
    url: Url = None,
    as_json: Json = False,
) -> None:
    feedback = read_rating(rating) | _why(comment) | {"dry_run": dry_run or None}
    _rate(Proxy(url), None if target == "last" else target, feedback, as_json)


def undo(
    feedback: Annotated[
        str | None, typer.Argument(metavar="ID", help="ID of the rating; default: your last one.")
    ] = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    proxy = Proxy(url)
    undone = proxy.delete(f"/v1/feedback/{in_path(_latest(proxy) if feedback is None else feedback)}")
    if not printed_json(undone, as_json):
        counting = counting_in_words(undone["rated"])
        console.print(f"taken back: {_what(undone)} on {_quote(undone)}; {counting}")


def read_rating(text: str) -> dict[str, Any]:
    """Turn a typed rating into fields of a feedback request. Raises WrongUsage."""
    if text in ("good", "bad"):
        return {"rating": text}
    if text in LIKERT:
        return {"rating": int(text), "scale": "likert"}
    if text.isdecimal():
        raise WrongUsage(
            f"a rating is 1 to 5, not {text}: {LIKERT_IN_WORDS}. A number from -1.0 to 1.0 needs its point: 0.0"
        )
    try:
        rating = float(text)
    except ValueError:
        rating = float("nan")
    if not -1 <= rating <= 1:
        raise WrongUsage(f"a rating is good, bad, 1 to 5, or a number from -1.0 to 1.0, not {text!r}")
    return {"rating": rating}


def _why(comment: list[str] | None) -> dict[str, Any]:
    return {"comment": " ".join(comment) if comment else None}


def _rate(proxy: Proxy, target: str | None, rating: dict[str, Any], as_json: bool) -> None:
    # The proxy resolves the upstream's response ID as well as its own.
    answer = (
        {"last": True, "scope": "turn"}
        if target is None
        else {"completion_id": proxy.get(f"/burnish/completions/{in_path(target)}")["id"]}
    )
    record = proxy.post("/v1/feedback", answer | rating)
    if printed_json(record, as_json):
        return
    verb = "already rated" if record["repeated"] else "would rate" if record.get("dry_run") else "rated"
    comment = " with your comment" if record["comment"] else ""
    console.print(f"{verb} {_what(record)}{comment}: {_quote(record)}{teaching(record)}")
    if record.get("dry_run"):
        counting = counting_in_words(record["rated"])
        console.print(f"[dim]nothing was stored; {counting}: {record['completion_id']}[/]", soft_wrap=True)


def teaching(record: dict[str, Any]) -> str:
    """Return what can't be learnt from a rating, as a clause; "" if all can."""
    clause = Usability(record["usable"], record["reason"]).in_words()
    return f"[yellow]{escape(clause)}[/]" if clause else ""


def _latest(proxy: Proxy) -> str:
    for record in proxy.get("/v1/feedback", limit=200, rater="local")["data"]:
        if record["undone_at"] is None:
            return str(record["id"])
    raise CommandFailed("you have no rating to take back")


def _what(record: dict[str, Any]) -> str:
    return verdict(record["reward"], record["scale"]) or "your " + next(filter(record.get, WORDS), "feedback")


def _quote(record: dict[str, Any]) -> str:
    if record["about"] is None:  # the key doesn't prove whose answer it was
        return f"[dim]the answer {escape(record['completion_id'])}[/]"
    reply = short(record["about"]["reply"])
    return f"[dim]“{reply}”[/]" if reply else "[dim]an answer without text[/]"
