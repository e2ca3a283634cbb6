"""Add our entries to the settings of an agent, and remove them again. Pure.

Removing is a three-way merge of the settings before our change, after it, and now. An entry gets its old value back
only if it is unchanged since. A *unit* is a table that belongs to us, such as a provider. It is removed as a whole,
with everything that the agent wrote into it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from copy import deepcopy
from itertools import pairwise
from typing import Any, NamedTuple

from burnish.parts.connect.base import Keys as Path
from burnish.parts.connect.formats import Format
from burnish.parts.connect.json_text import END

Entries = Sequence[tuple[Path, Any]]
"""Paths and values to set. A path that ends in END adds an element to a list."""


NOTHING = object()
"""Marks a missing value."""


class Difference(NamedTuple):
    """One difference between two settings."""

    path: Path
    before: Any
    """NOTHING: it wasn't there."""
    after: Any
    """NOTHING: it is gone, because a table of ours replaced the one that it was in."""


def with_entries(how: Format, text: str, entries: Entries) -> str:
    """Add entries to settings. Raises ValueError if that isn't possible."""
    wanted = how.parse(text)
    new = text
    for path, value in entries:
        if path[-1] == END and isinstance(there := at(wanted, path[:-1]), list) and value in there:
            continue
        new = how.put(new, path, value)
        _set(wanted, path, value)
    if how.parse(new) != wanted:
        raise ValueError("burnish can't safely change a file that is written like this")
    return new


def units_of(entries: Entries) -> frozenset[Path]:
    return frozenset(path for path, value in entries if isinstance(value, dict) and path[-1] != END)


def without_entries(
    how: Format, text: str, before: str, after: str, units: Collection[Path] = frozenset()
) -> str:
    """Undo in ``text`` the change from ``before`` to ``after``. Raises ValueError."""
    for path, old, ours in differences(how.parse(before), how.parse(after), units):
        now = at(how.parse(text), path[:-1] if path[-1] == END else path)
        if path[-1] == END:
            if isinstance(now, list) and ours in now:
                text = how.remove(text, (*path[:-1], now.index(ours)))
        elif now == ours or (path in units and _holds(now, ours)):
            text = how.remove(text, path) if old is NOTHING else how.put(text, path, old)
    return text


def differences(
    before: Mapping[str, Any], after: Mapping[str, Any], units: Collection[Path], path: Path = ()
) -> Iterator[Difference]:
    """Yield the differences: a unit comes before its contents, any other new container after them."""
    for key, value in after.items():
        here, old = (*path, key), before.get(key, NOTHING)
        made = old is NOTHING
        if here in units and old != value:
            yield Difference(here, old, value)
        if isinstance(value, dict) and (made or isinstance(old, dict)):
            yield from differences({} if made else old, value, units, here)
        elif isinstance(value, list) and (made or (isinstance(old, list) and value[: len(old)] == old)):
            yield from (Difference((*here, END), NOTHING, each) for each in value[0 if made else len(old) :])
        elif old != value:
            yield Difference(here, old, value)
            continue
        if made:
            yield Difference(here, NOTHING, type(value)())
    yield from (Difference((*path, key), old, NOTHING) for key, old in before.items() if key not in after)


def _holds(now: Any, ours: Any) -> bool:
    """Return True if all our values are still there; additions don't matter."""
    if isinstance(now, dict) and isinstance(ours, dict) and ours:
        return all(key in now and _holds(now[key], value) for key, value in ours.items())
    return bool(now == ours)


def at(settings: Any, path: Path) -> Any:
    """Return the value at a path; NOTHING if there is none."""
    for key in path:
        if not isinstance(settings, dict) or key not in settings:
            return NOTHING
        settings = settings[key]
    return settings


def _set(settings: dict[str, Any], path: Path, value: Any) -> None:
    """Like ``put``, but on parsed settings."""
    here: Any = settings
    for key, inner in pairwise(path):
        here = here.setdefault(key, [] if inner == END else {})
    if path[-1] == END:
        here.append(deepcopy(value))
    else:
        here[path[-1]] = deepcopy(value)
