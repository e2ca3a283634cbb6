"""Files of captures that the database does not take yet, read back in order.

A segment is a file of records, ``length, CRC-32, capture``; segments sort by name. A record that was torn by a crash
ends its segment: nothing behind it was ever complete. Not thread-safe.
"""

from __future__ import annotations

import json
import logging
import math
import os
import struct
import zlib
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import orjson

from burnish.proxy.records import Answerer, Completion, CompletionEnd, Passthrough, RequestFacts, Tokens, Wire

logger = logging.getLogger(__name__)

SUFFIX = ".captures"
JOURNAL = ".journal"
"""Of the files that ``journal`` writes while it runs."""
SEGMENT_BYTES = 64 * 1024 * 1024
"""A segment is removed when all of it is in the database; a longer one would keep its room on the disk for longer."""
READ_BYTES = 16 * 1024 * 1024
"""Read back at a time, unless a single capture is longer."""
FIRST_NUMBER = 10**11
"""Of twelve digits: captures that were taken out too early go into a segment before all others."""

HEAD = struct.Struct("<II")
Entry = Completion | Passthrough
Part = TypeVar("Part", RequestFacts, Answerer, CompletionEnd, Wire)


class UnreadableCapture(ValueError):
    """A whole record that cannot be read as a capture."""


class Spill:
    """The files in one folder, which is made when the first one is needed."""

    def __init__(self, folder: Path) -> None:
        """Take over the files that an earlier process left."""
        self._folder = folder
        self._segments = deque(sorted(p for p in folder.glob(f"*{SUFFIX}") if p.stem.isdecimal()))
        for copied in sorted(folder.glob(f"*{JOURNAL}"), reverse=True):
            self._segments.appendleft(copied.rename(self._path(self._before_all())))
        self._position = 0
        """In the first segment; all captures before it are in the database."""
        self._read_to = 0
        self._open: BinaryIO | None = None
        """The last segment, where it is of this process."""
        self._length = 0
        """Of the open one, in whole records."""

    @property
    def waiting(self) -> bool:
        return bool(self._segments)

    @property
    def more(self) -> bool:
        """True if there are captures behind those that ``read`` returned last."""
        return len(self._segments) > 1 or (bool(self._segments) and self._read_to < _size(self._segments[0]))

    def append(self, entry: Entry) -> None:
        """Put a capture behind all others. Raises OSError, with nothing of it stored."""
        # A segment that was deleted or moved away takes no more.
        if self._open is None or self._length >= SEGMENT_BYTES or not self._segments[-1].exists():
            last = int(self._segments[-1].stem) if self._segments else FIRST_NUMBER
            path = self._path(last + 1)
            file = _create(path)
            self.close()
            self._open = file
            self._segments.append(path)
        record = packed(entry)
        try:
            _write(self._open, record)
        except OSError:
            self._open.truncate(self._length)
            self._open.seek(self._length)
            raise
        self._length += len(record)

    def put_back(self, entries: Iterable[Entry]) -> None:
        """Put captures before all others. Raises OSError, with none of them stored."""
        assert not self._position, "nothing can go before what is half read"
        path = self._path(self._before_all())
        _write_new(path, entries)
        self._segments.appendleft(path)

    def read(self, limit: int) -> list[Entry]:
        """Return the first captures, at most so many; they stay until ``forget_read``. Empty: there are none.

        Raises OSError, UnreadableCapture; after that, call ``skip``.
        """
        while self._segments:
            entries: list[Entry] = []
            self._read_to = self._position
            try:
                for entry, end in self._records(self._segments[0]):
                    entries.append(entry)
                    self._read_to = end
                    if len(entries) >= limit or end - self._position >= READ_BYTES:
                        break
            except UnreadableCapture:
                if not entries:
                    raise
            if entries:
                return entries
            self._remove_first()
        return []

    def forget_read(self) -> None:
        """Remove what ``read`` returned last: it is in the database."""
        self._position = self._read_to
        if self._segments and self._position >= _size(self._segments[0]):
            self._remove_first()

    def skip(self) -> Path:
        """Set the first segment aside and return where it is now: it cannot be read."""
        path = self._segments.popleft()
        if not self._segments:
            self.close()
        self._position = self._read_to = 0
        aside = path.with_suffix(".unreadable")
        with suppress(OSError):
            path.rename(aside)
        return aside

    def close(self) -> None:
        """Close the files; what is in them stays."""
        if self._open:
            self._open.close()
        self._open, self._length = None, 0

    def _before_all(self) -> int:
        return int(self._segments[0].stem) - 1 if self._segments else FIRST_NUMBER

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:012d}{SUFFIX}"

    def _records(self, path: Path) -> Iterator[tuple[Entry, int]]:
        """Yield captures from where reading stands, and where the record of each ends."""
        with path.open("rb") as segment:
            segment.seek(self._position)
            while len(head := segment.read(HEAD.size)) == HEAD.size:
                length, checksum = HEAD.unpack(head)
                content = segment.read(length)
                if len(content) < length or zlib.crc32(content) != checksum:
                    logger.warning("%s ends in a torn record, which is left out", path)
                    return
                yield _unpacked(content), segment.tell()

    def _remove_first(self) -> None:
        path = self._segments.popleft()
        if not self._segments:
            self.close()
        path.unlink(missing_ok=True)
        self._position = self._read_to = 0


def _size(path: Path) -> int:
    """Return the length of a file, 0 if somebody has deleted it."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def packed(entry: Entry) -> bytes:
    """Return an entry as a record: its length and CRC-32, its facts as JSON, and the bytes of both bodies."""
    bodies: list[bytes] = []
    if isinstance(entry, Passthrough):
        facts = entry._asdict()
    else:
        facts = {"id": entry.id, "instructions": entry.instructions}
        for part in (entry.asked, entry.served, entry.ended, entry.wire):
            facts.update(zip(part._fields, part, strict=True))
        bodies = [facts.pop("request_body"), *facts.pop("chunks")]
        if tokens := facts.pop("tokens"):
            facts["tokens"] = tokens._asdict()
    facts["lengths"] = list(map(len, bodies))
    try:
        encoded = orjson.dumps(facts)
    except TypeError:  # orjson refuses half of a surrogate pair, which the standard library takes
        encoded = json.dumps(facts).encode()
    content = b"".join([len(encoded).to_bytes(4, "little"), encoded, *bodies])
    return HEAD.pack(len(content), zlib.crc32(content)) + content


def _unpacked(content: bytes) -> Entry:
    start = 4 + int.from_bytes(content[:4], "little")
    try:
        facts = json.loads(content[4:start])
        bodies = []
        for length in facts.pop("lengths"):
            bodies.append(content[start : start + length])
            start += length
        return _entry(facts, bodies)
    except (ValueError, TypeError, LookupError) as error:
        raise UnreadableCapture(f"a capture that another version of burnish wrote: {error}") from error


def _entry(facts: dict[str, Any], bodies: list[bytes]) -> Entry:
    """Build an entry from its facts. Raises TypeError if one is missing or unknown, and LookupError."""
    if "method" in facts:
        return Passthrough(**facts)
    facts |= {"request_body": bodies[0], "chunks": tuple(bodies[1:])}
    if tokens := facts.pop("tokens", None):
        facts["tokens"] = _tokens(**tokens)

    def part(kind: type[Part]) -> Part:
        return kind(**{name: facts.pop(name) for name in kind._fields if name in facts})

    request, model, ending, wire = part(RequestFacts), part(Answerer), part(CompletionEnd), part(Wire)
    return Completion(asked=request, served=model, ended=ending, wire=wire, **facts)


def _tokens(prompt: list[int], reply: list[int], logprobs: list[float | None], missing: str | None) -> Tokens:
    """Build tokens from JSON, which has no NaN."""
    numbers = (math.nan if logprob is None else logprob for logprob in logprobs)
    return Tokens(tuple(prompt), tuple(reply), tuple(numbers), missing)


def _create(path: Path) -> BinaryIO:
    path.parent.mkdir(mode=0o700, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    os.fchmod(descriptor, 0o600)
    return os.fdopen(descriptor, "wb", buffering=0)


def _write_new(path: Path, entries: Iterable[Entry]) -> None:
    """Write captures into a new file. Raises OSError, with nothing left behind."""
    with _create(path) as file:
        try:
            _write(file, b"".join(map(packed, entries)))
        except OSError:
            path.unlink()
            raise


def _write(file: BinaryIO, content: bytes) -> None:
    """Write all of it: a disk that is nearly full takes only a part at first."""
    view = memoryview(content)
    while view:
        view = view[file.write(view) or 0 :]


class Journal:
    """Copies of entries that wait too long for a busy writer: they keep the group-commit window under full load.

    A file is written in one piece and not synced: it survives kill -9, but no power loss. It is removed when all its
    entries are in the database. After a crash, the next start reads it back like a spill file; entries that were
    stored already stay as they are. The folder is made when it is needed. One thread writes, another may forget.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: deque[tuple[int, Path]] = deque()
        """With the number of the last capture in each."""

    def write(self, entries: Iterable[Entry], last: int) -> None:
        """Copy captures, of which the last has this number. Raises OSError, with nothing left behind."""
        path = self._folder / f"{last:012d}{JOURNAL}"
        _write_new(path, entries)
        self._files.append((last, path))

    def forget(self, safe: int) -> None:
        """Remove the files that hold nothing beyond the capture of this number."""
        while self._files and self._files[0][0] <= safe:
            with suppress(OSError):  # a file too many is read back to no effect
                self._files.popleft()[1].unlink()
