"""``burnish backup`` and ``burnish forget``: keeping what was said, and not keeping it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from burnish.proxy.cli.client import Proxy, in_path
from burnish.proxy.cli.errors import Interrupted
from burnish.proxy.cli.settings import read_settings
from burnish.proxy.cli.terminal import Json, Url, console, print_json


def backup(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A new file.")],
    data_dir: Annotated[Path | None, typer.Option(help="Where the log lives.")] = None,
    as_json: Json = False,
) -> None:
    """Copy the log into a file, also while burnish runs, and check the copy.

    To restore: stop burnish, and put the file in the place of burnish.db in the data directory.
    """
    from burnish.proxy.log.backup import back_up

    completions = back_up(read_settings({"data_dir": data_dir}).log_file, file.absolute())
    if as_json:
        print_json({"file": str(file.absolute()), "completions": completions})
        return
    console.print(f"[green]copied[/] {completions} completions to {escape(str(file))}, and checked the copy")


def forget(
    user: Annotated[str, typer.Option("--user", help="As in x-burnish-user; who sends none is local.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Erase what somebody asked, was answered, and said of answers, for good.

    Versions that have learnt from it, and backups, stay as they are.
    """
    proxy = Proxy(url)
    if not yes and not typer.confirm(f"Erase all that {user} said?"):
        raise Interrupted("nothing was erased")
    erased = proxy.delete(f"/burnish/users/{in_path(user)}")
    if as_json:
        print_json(erased)
        return
    console.print(
        f"[green]erased[/] {erased['erased']} completions, ratings and other requests of {escape(user)}"
    )
