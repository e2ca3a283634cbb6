"""The page's files as browsers get them: the document, styles and modules. They hold no data of users."""

from __future__ import annotations

import hashlib
import posixpath
import re
from pathlib import Path

from burnish.parts.page.paths import FILES

FOLDER = Path(__file__).parent / "files"
TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
"""Media types of what is served. Licences and notes beside it aren't."""
AT_ONCE = ("main.js", "views/live.js")
"""What the first view needs, with all that they import. The other views load theirs when they are opened."""
STYLES = "styles.css"
"""All our styles as one file, which is a third smaller than all of them compressed alone."""
VENDORED = "vendor/"
"""Their licences want these files as they are."""
IMPORTED = re.compile(rb'^(?:import|export|\}) [^;]*?from "(\.[^"]+)";$', re.MULTILINE)
COMMENT = re.compile(rb"^[ \t]*//.*$", re.MULTILINE)
"""A line of JavaScript that is only a comment."""
MARK = "<!-- styles and modules -->"
ICON = '"icon.svg"'
DIGEST_CHARS = 16

Stamp = tuple[tuple[str, int, int], ...]
"""Of each file its name, when it was changed, and its size."""


def served(name: str, content: bytes) -> bytes:
    """Return a file as a browser gets it. Without the comments of ours, all of them are a tenth smaller."""
    if not name.endswith(".js") or name.startswith(VENDORED):
        return content
    return COMMENT.sub(b"", content)  # the empty lines stay, so that a fault names the right one


class Files:
    """All files, in memory. They are read again after a change, so the page needs no restart while it is written."""

    def __init__(self) -> None:
        self._stamp: Stamp = ()
        self._contents: dict[str, bytes] = {}
        self.digest = ""
        """Of all names and contents. Addresses in the document hold it, so a browser may keep what is there."""
        self.document = b""
        """The page. It names the modules of the first view, so that a browser loads all of them at once."""

    def get(self, name: str) -> bytes | None:
        return self._contents.get(name)

    def refresh(self) -> None:
        """Read what changed; blocks."""
        paths = sorted(path for path in FOLDER.rglob("*") if path.suffix in TYPES)
        known = [(path, path.relative_to(FOLDER).as_posix(), path.stat()) for path in paths]
        stamp = tuple((name, found.st_mtime_ns, found.st_size) for _, name, found in known)
        if stamp == self._stamp:
            return
        contents = {name: served(name, path.read_bytes()) for path, name, _ in known}
        ours = [name for name in contents if name.endswith(".css") and not name.startswith(VENDORED)]
        contents[STYLES] = b"".join(contents.pop(name) for name in ours)
        self._contents = contents
        digest = hashlib.sha256()
        for name, content in self._contents.items():
            digest.update(f"{name} {len(content)}\n".encode() + content)
        self.digest = digest.hexdigest()[:DIGEST_CHARS]
        self.document = self._written()
        self._stamp = stamp

    def _written(self) -> bytes:
        at = f"{FILES}{self.digest}/"
        style = f'<link rel="stylesheet" href="{at}{STYLES}">'
        modules = [f'<link rel="modulepreload" href="{at}{name}">' for name in self.needed()]
        start = f'<script type="module" src="{at}main.js"></script>'
        document = self._contents["index.html"].decode()
        written = document.replace(MARK, "\n".join([style, *modules, start]))
        return written.replace(ICON, f'"{at}icon.svg"').encode()

    def needed(self) -> list[str]:
        found: dict[str, None] = {}
        left = list(AT_ONCE)
        while left:
            name = left.pop()
            if name not in found:
                found[name] = None
                imported = IMPORTED.findall(self._contents[name])
                left += [posixpath.normpath(f"{name}/../{path.decode()}") for path in imported]
        return sorted(found)
