"""Line editing and a history, with prompt_toolkit. Imported on terminals only."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import FormattedText
from prompt_toolkit.history import FileHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.styles import Style

from burnish.parts.desktop.chat.input import ASK, HINT, KEYS, RATE, WHY
from burnish.system import durable

KEY_HINT = "press g/b/1–5, c comment; Enter skips; or just go on"
HISTORY_LIMIT_BYTES = 1024 * 1024
# Of prompt_toolkit's entries; an empty line of a message has a plus.
BETWEEN = b"\n\n"
STYLE = Style.from_dict({"you": "ansicyan bold", "rate": "ansibrightblack", "hint": "ansibrightblack"})


class Editor:
    """Enter sends; Alt-Enter, or a backslash before Enter, begins a new line; pasted lines stay together."""

    def __init__(self, history: Path, *, one_key: bool) -> None:
        """``one_key``: the first key of a rating is the whole of it."""
        self._history = _Messages(history)
        self._one_key = one_key
        self._rates = False
        """Whether a rating is asked for."""
        output = Vt100_Output.from_pty(sys.stdout, term=os.environ.get("TERM"))
        # Asking for the cursor's position confuses terminals that don't answer, and nothing here needs it.
        output.enable_cpr = False
        self._session: PromptSession[str] = PromptSession(
            history=self._history,
            key_bindings=self._keys(),
            multiline=True,
            style=STYLE,
            output=output,
        )

    def message(self) -> str | None:
        return self._read("you", ASK)

    def rating(self) -> str | None:
        self._rates = True
        try:
            return self._read("rate", RATE, KEY_HINT if self._one_key else HINT)
        finally:
            self._rates = False

    def why(self) -> str | None:
        return self._read("rate", WHY)

    def remember(self, message: str) -> None:
        self._history.remember(message)

    def _read(self, style: str, prompt: str, hint: str = "") -> str | None:
        try:
            return self._session.prompt(
                FormattedText([(f"class:{style}", prompt)]),
                placeholder=FormattedText([("class:hint", hint)]),
                prompt_continuation=" " * len(prompt),
            )
        except EOFError:
            return None

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()

        @keys.add("enter")
        def send(event: KeyPressEvent) -> None:
            buffer = event.current_buffer
            if buffer.document.is_cursor_at_the_end and buffer.text.endswith("\\"):
                buffer.delete_before_cursor()
                buffer.insert_text("\n")
            else:
                buffer.validate_and_handle()

        @keys.add("escape", "enter")
        def begin_line(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text("\n")

        def rate(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text(event.data)
            event.current_buffer.validate_and_handle()

        first = Condition(lambda: self._one_key and self._rates and not self._session.default_buffer.text)
        for key in KEYS:
            keys.add(key, filter=first)(rate)
        return keys


class _Messages(FileHistory):
    """Keeps what is remembered, not everything that is typed: a rating isn't worth finding again."""

    def append_string(self, string: str) -> None:
        pass

    def remember(self, message: str) -> None:
        with suppress(OSError):  # a full disk must not end the chat
            super().append_string(message)


def open_history(path: Path) -> None:
    """Create a file that only its owner can read, or forget the older half of a long one. Raises OSError."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
    try:
        os.fchmod(descriptor, 0o600)
    finally:
        os.close(descriptor)
    if path.stat().st_size > HISTORY_LIMIT_BYTES:
        durable.replace(path, path.read_bytes()[-HISTORY_LIMIT_BYTES // 2 :].partition(BETWEEN)[2])
