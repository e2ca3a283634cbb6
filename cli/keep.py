"""``burnish backup``, ``export`` and ``forget``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from burnish.proxy.plain import plain
from burnish.terminal.client import Proxy, in_path, read_settings
from burnish.terminal.errors import Interrupted
from burnish.terminal.terminal import Json, Url, console, new_file, printed_json

PAGE = 200
"""Records per request: each completion comes with its whole context."""
User = Annotated[str, typer.Option("--user", help="Name in the header x-burnish-user; without one: local.")]


def backup(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to create.")],
    data_dir: Annotated[Path | None, typer.Option(help="The data directory, with the log.")] = None,
    as_json: Json = False,
) -> None:
    """To restore: stop burnish, and replace burnish.db in the data directory with the copy."""
    from burnish.proxy.log.files import back_up

    completions = back_up(read_settings({"data_dir": data_dir}).log_file, file.absolute())
    if printed_json({"file": str(file.absolute()), "completions": completions}, as_json):
        return
    console.print(f"[green]copied[/] {completions} completions to {escape(str(file))} and checked the copy")


def export(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="The file to create, with one JSON object per line.")
    ],
    user: User,
    url: Url = None,
    as_json: Json = False,
) -> None:
    proxy, lines = Proxy(url), 0
    page: dict[str, Any] = {"has_more": True, "data": [{"id": ""}]}
    with new_file(file) as writer:
        while page["has_more"]:
            page = proxy.get(f"/burnish/users/{in_path(user)}", after=page["data"][-1]["id"], limit=PAGE)
            for record in page["data"]:
                writer.write(json.dumps(record, ensure_ascii=False) + "\n")
            lines += len(page["data"])
    if printed_json({"file": str(file.absolute()), "lines": lines}, as_json):
        return
    console.print(f"[green]wrote[/] {lines} lines about {escape(user)} to {escape(str(file))}")


def forget(
    user: User,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask first.")] = False,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Versions that were trained on it and backups stay unchanged."""
    proxy = Proxy(url)
    remains = "Versions that learnt from them stay, and so do backups."
    if not yes and not typer.confirm(f"Erase all requests, answers and ratings of {plain(user)}? {remains}"):
        raise Interrupted("nothing was erased")
    erased = proxy.delete(f"/burnish/users/{in_path(user)}")
    if printed_json(erased, as_json):
        return
    count = erased["erased"]
    console.print(f"[green]erased[/] {count} completions, ratings and other requests of {escape(user)}")
    if (typed := read_settings().chat_history_file).exists():
        console.print(
            f"[dim]what was typed into `burnish chat` on this machine is in {escape(str(typed))}: delete it, too[/]",
            soft_wrap=True,
        )
