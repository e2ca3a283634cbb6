"""Commands that are typed in the chat. None of them reaches the model or the log."""

from __future__ import annotations

HELP = {
    "/help": "show this list",
    "/new": "start a new conversation",
    "/undo": "take back your last rating",
    "/exit": "end the chat (also /quit, /bye or Ctrl-D)",
    "/rl …": "burnish's own commands: /rl bad too long, /rl status, /rl help",
}
OTHER_NAMES = {"/quit": "/exit", "/bye": "/exit", "/q": "/exit", "/clear": "/new", "/?": "/help"}
SLASHES = ("/", "／")


def command(typed: str) -> str | None:
    """Return the name of a command, which may be unknown; None for a message.

    A text of several lines, or one that begins with a space, is a message.
    """
    if not typed.startswith("/") or "\n" in typed:
        return None
    name = typed.strip().lower()
    return OTHER_NAMES.get(name, name)


def is_rl(typed: str) -> bool:
    """Return whether burnish itself answers a message."""
    if not typed.lstrip().startswith(SLASHES):
        return False
    from burnish.proxy.rl.grammar import parse  # only for a slash: it is slow to import

    return parse(typed) is not None


def explained() -> str:
    width = max(map(len, HELP))
    return "\n".join(f"  {name:<{width}}  {what}" for name, what in HELP.items())


def unknown(name: str) -> str:
    return (
        f"there is no command {name}, so nothing was sent. The commands are:\n{explained()}\n"
        "  To send a message that begins with /, put a space before it."
    )
