"""The versions on disk, and their history.

``root/v0007/`` is a version: copied, checked, fsynced and renamed into place, then never changed.
``root/events.jsonl`` is the history: one line a change of state; lines are only added, and fsynced. The last ``live``
line names the live version, so it is the commit point of a swap: a crash before it leaves the old version live, after
it the new one.
Any process may read; only the proxy that has locked the data directory writes.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pydantic import ValidationError

from burnish.adapters.errors import CorruptAdapter, IllegalTransition, PrunedVersion, UnknownVersion
from burnish.adapters.manifest import BASE_VERSION, AdapterVersion, Event, Manifest, Probe, Provenance, State
from burnish.adapters.weights_file import ALLOWED, check_adapter, check_names
from burnish.system import durable

logger = logging.getLogger(__name__)

EVENTS = "events.jsonl"
MANIFEST = "manifest.json"
_PARTIAL = ".tmp"
_DIRECTORY = re.compile(r"v(\d{4,})")
_COPY_BYTES = 1024**2
_INTERRUPTED = "burnish was interrupted just after it was trained"
_LOST = "its history was lost: events.jsonl had been deleted or emptied"

PASSED_AGAINST = "passed_against"
"""In the details of an event: the version that was live when this one passed the gate."""
NEXT: MappingProxyType[State, frozenset[State]] = MappingProxyType(
    {
        "candidate": frozenset({"candidate", "rejected", "live", "pruned"}),
        "rejected": frozenset({"live", "pruned"}),
        "live": frozenset({"live"}),
        "retired": frozenset({"retired", "rejected", "live", "pruned"}),
        "pruned": frozenset(),
    }
)
"""The states that may follow each state. The same state again adds a reason, e.g. an undecided verdict. A live version
is retired only when another one goes live, because one must always be live. Pruned: without weights."""


class Registry:
    """All versions of one data directory."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._writing = threading.Lock()
        self._kept: bytes | None = None
        """The whole lines of the history, once ``recover`` has read them."""
        self.on_live: Callable[[int], None] = lambda _: None
        """Called with the number of a version that has become live, on any thread."""

    def versions(self) -> list[AdapterVersion]:
        """Return every version in order; log and leave out those with an unreadable manifest."""
        events = self.events()
        found = []
        for number in sorted({event.version for event in events} & set(self._directories())):
            try:
                found.append(self._version(number, events))
            except CorruptAdapter as error:
                logger.warning("version %d is left out: %s", number, error)
        return found

    def get(self, number: int) -> AdapterVersion:
        """Return one version. Raises UnknownVersion, CorruptAdapter (unreadable manifest)."""
        events = self.events()
        if number not in self._directories() or not any(event.version == number for event in events):
            known = ", ".join(f"v{version.number}" for version in self.versions()) or "none yet"
            raise UnknownVersion(f"there is no version {number} (versions: {known})")
        return self._version(number, events)

    def live(self) -> int:
        """Return the number of the live version; 0 = the base model."""
        return _went_live(self.events())[-1]

    def previous_live(self) -> int | None:
        """Return the version that a rollback leads to; None if there is none. Pruned versions are skipped.

        A rollback to a version undoes all that went live after it: after 0, 1, 2 and back to 1, the next is 0.
        """
        events = self.events()
        path: list[int] = []
        for number in _went_live(events):
            path = [*path[: path.index(number)], number] if number in path else [*path, number]
        pruned = {event.version for event in events if event.state == "pruned"}
        path = [number for number in path if number not in pruned]
        return path[-2] if len(path) > 1 else None

    def state(self, number: int) -> State:
        """Return the state of a version, or of the base model (0). Raises UnknownVersion."""
        if number != BASE_VERSION:
            return self.get(number).state
        return "live" if self.live() == BASE_VERSION else "retired"

    def events(self, version: int | None = None) -> list[Event]:
        """Return the history, oldest first; of one version or of all.

        An incomplete last line is left out: a crash, or a writer at work. Raises CorruptAdapter for other damage.
        """
        try:
            events = [Event.model_validate_json(line) for line in self._whole_lines().splitlines()]
        except ValidationError as error:
            path = self.root / EVENTS
            raise CorruptAdapter(f"{path} is damaged, restore it from a backup: {error}") from error
        return [event for event in events if version in (None, event.version)]

    def changes(self) -> tuple[int, int]:
        """Return another value once the history has changed: cheap enough to ask twice a second."""
        try:
            found = (self.root / EVENTS).stat()
        except OSError:
            return 0, 0
        return found.st_mtime_ns, found.st_size

    def record(self, version: int, state: State, reason: str, **details: Any) -> Event:
        """Append a change of state. Raises UnknownVersion, IllegalTransition, OSError (nothing is recorded then)."""
        with self._writing:
            now = self.state(version)
            if state not in NEXT[now] or (version == BASE_VERSION and state == "rejected"):
                raise IllegalTransition(f"{version_label(version)} is {now} and can't become {state}")
            event = self._append(version, state, reason, details)
        if state == "live":
            self.on_live(version)
        return event

    def register(self, adapter_dir: Path, provenance: Provenance) -> AdapterVersion:
        """Copy an adapter in as a new version, a candidate.

        Raises CorruptAdapter, which names the fault in the files, and OSError (a full disk); nothing is registered
        then. The copy is checked, not the source, which may change meanwhile.
        """
        with self._writing, self._new_directory() as (number, partial):
            check_names(adapter_dir, ALLOWED)
            checksums = {name: _copy(adapter_dir / name, partial / name) for name in sorted(ALLOWED)}
            check_adapter(partial)
            manifest = Manifest(version=number, created_at=_now(), checksums=checksums, **dict(provenance))
            durable.create(partial / MANIFEST, manifest.model_dump_json(indent=1).encode())
            durable.sync(partial)
            partial.rename(self._path(number))
            durable.sync(self.root)
            self._append(number, "candidate", f"trained by {provenance.run_id}", {})
        return self.get(number)

    def set_proof(self, number: int, proof: tuple[Probe, ...]) -> None:
        """Replace a version's proof: it had none, or its contexts quote an erased user. Raises as ``get``, OSError."""
        with self._writing:
            manifest = self.get(number).manifest.model_copy(update={"proof": proof})
            durable.replace(self._path(number) / MANIFEST, manifest.model_dump_json(indent=1))

    def verify(self, number: int) -> None:
        """Compare a version's files with its manifest. Raises UnknownVersion, PrunedVersion, CorruptAdapter."""
        version = self.get(number)
        if version.state == "pruned":
            raise PrunedVersion(f"{version_label(number)} no longer has weights: {version.reason}")
        check_names(version.path, ALLOWED | {MANIFEST})
        for name, expected in version.manifest.checksums.items():
            with (version.path / name).open("rb") as file:
                found = hashlib.file_digest(file, "sha256").hexdigest()
            if found != expected:
                raise CorruptAdapter(
                    f"{version.path / name} has changed (sha256 {found[:12]}…, expected {expected[:12]}…): "
                    "roll back to another version, or restore the file"
                )

    def prune(self, number: int, reason: str) -> None:
        """Delete a version's weights, not its manifest. Raises UnknownVersion, IllegalTransition (live), OSError."""
        self.record(number, "pruned", reason)
        _delete_weights(self._path(number))

    def recover(self) -> None:
        """Clean up after a crash: delete half-copied and half-deleted versions, and add a missing first event.

        The process that writes calls it once, before anything else.
        """
        with self._writing:
            for partial in self.root.glob(f"v*{_PARTIAL}"):
                shutil.rmtree(partial, ignore_errors=True)
            events = self.events()
            for event in events:
                if event.state == "pruned":
                    _delete_weights(self._path(event.version))
            self._kept = self._whole_lines()
            known = {event.version for event in events}
            # A version that awaits a person isn't judged by the next start.
            reason, details = (_INTERRUPTED, {}) if events else (_LOST, {"awaits": "promotion"})
            for number in sorted(set(self._directories()) - known):
                self._append(number, "candidate", reason, details)

    def restore(self) -> bool:
        """Write the history again if another program has cut or deleted it; return whether one had. Raises OSError."""
        with self._writing:
            path = self.root / EVENTS
            if not self._kept or (path.exists() and path.stat().st_size >= len(self._kept)):
                return False
            durable.replace(path, self._kept)
            return True

    def lost(self) -> str | None:
        """Return what to do if nobody knows which version was live; None once one has gone live since."""
        since = next((e for e in reversed(self.events()) if e.state == "live" or e.reason == _LOST), None)
        if since is None or since.state == "live":
            return None
        return (
            f"{self.root / EVENTS} had been deleted or emptied, so burnish doesn't know which version was live. "
            "Restore it from a backup, or choose a version: burnish adapters list, burnish adapters promote"
        )

    def _version(self, number: int, events: Sequence[Event]) -> AdapterVersion:
        path = self._path(number)
        try:
            manifest = Manifest.model_validate_json((path / MANIFEST).read_bytes())
        except (OSError, ValidationError) as error:
            raise CorruptAdapter(f"{path / MANIFEST} cannot be read: {error}") from error
        last = next(event for event in reversed(events) if event.version == number)
        state, reason = last.state, last.reason
        if state == "live" and (successor := _went_live(events)[-1]) != number:
            state, reason = "retired", f"{version_label(successor)} is live instead"
        return AdapterVersion(manifest=manifest, path=path, state=state, reason=reason)

    def _path(self, number: int) -> Path:
        return self.root / f"v{number:04d}"

    def _directories(self) -> dict[int, Path]:
        if not self.root.is_dir():
            return {}
        named = ((_DIRECTORY.fullmatch(path.name), path) for path in self.root.iterdir())
        return {int(match[1]): path for match, path in named if match and not path.is_symlink()}

    @contextmanager
    def _new_directory(self) -> Iterator[tuple[int, Path]]:
        """Yield an unused number and a directory to fill, which is deleted afterwards unless it was renamed."""
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        used = {event.version for event in self.events()} | self._directories().keys()
        number = max(used, default=0) + 1
        partial = self.root / f"v{number:04d}{_PARTIAL}"
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(mode=0o700)
        partial.chmod(0o700)
        try:
            yield number, partial
        finally:
            shutil.rmtree(partial, ignore_errors=True)

    def _whole_lines(self) -> bytes:
        """Read the history's whole lines, or what was read before if that is more. Raises CorruptAdapter."""
        try:
            content = (self.root / EVENTS).read_bytes()
        except FileNotFoundError:
            content = b""
        except OSError as error:
            raise CorruptAdapter(f"{self.root / EVENTS} cannot be read: {error.strerror}") from error
        content = content[: _whole(content)]
        if self._kept is None:
            return content
        if len(content) >= len(self._kept):
            self._kept = content
        return self._kept

    def _append(self, version: int, state: State, reason: str, details: dict[str, Any]) -> Event:
        """Add one line durably, all of it or nothing; an incomplete one goes."""
        event = Event(at=_now(), version=version, state=state, reason=reason, details=details)
        content = self._whole_lines() + event.model_dump_json().encode() + b"\n"
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        durable.replace(self.root / EVENTS, content)
        if self._kept is not None:
            self._kept = content
        return event


def version_label(version: int) -> str:
    """Return "v7", or "the base model" for 0."""
    return "the base model" if version == BASE_VERSION else f"v{version}"


def _went_live(events: Sequence[Event]) -> list[int]:
    return [BASE_VERSION, *(event.version for event in events if event.state == "live")]


def _whole(content: bytes) -> int:
    """Return the length of the whole lines: up to the last newline, without a last line garbled by a crash."""
    end = content.rfind(b"\n") + 1
    begin = content.rfind(b"\n", 0, max(end - 1, 0)) + 1
    try:
        Event.model_validate_json(content[begin:end])
    except ValidationError:
        return begin
    return end


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _delete_weights(version: Path) -> None:
    for name in ALLOWED:
        (version / name).unlink(missing_ok=True)


def _copy(source: Path, target: Path) -> str:
    """Copy a regular file durably (0600) and return its sha256; don't follow a link."""
    digest = hashlib.sha256()
    descriptor = os.open(source, os.O_RDONLY | os.O_NOFOLLOW)
    with os.fdopen(descriptor, "rb") as reader, durable.created(target) as writer:
        while chunk := reader.read(_COPY_BYTES):
            digest.update(chunk)
            writer.write(chunk)
    return digest.hexdigest()


def waiting(registry: Registry) -> int | None:
    """Return the latest candidate that passed the gate against the live version; None if there is none.

    If another version goes live, it waits no longer: nobody has compared those two. Once the first one is live again,
    it waits again.
    """
    live, events = registry.live(), registry.events()
    states = {event.version: event.state for event in events}
    passed = {event.version for event in events if event.details.get(PASSED_AGAINST) == live}
    return max((version for version in passed if states[version] == "candidate"), default=None)


def passed(registry: Registry, number: int) -> Event | None:
    """Return the event in which a version passed the gate; None if it didn't."""
    return next((e for e in reversed(registry.events(number)) if PASSED_AGAINST in e.details), None)
