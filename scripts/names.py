"""Count names that don't say what they hold: participles, pronouns, and words for anything. ``scripts/check`` calls it.

    names.py              fails if there are too many of them, or if classes share a name
    names.py PATH...      lists the places in these files or folders

A name is the thing that it holds, in the field's word: rows, request, reply, feedback.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOMS = (
    "adapters", "agents", "app", "cli", "config", "gate", "learner", "parts", "proxy", "system", "terminal", "training",
)  # fmt: skip
PARTICIPLES = frozenset(
    """added answered asked begun changed chosen done ended found gone given heard held judged kept known learnt left
    made meant named opened played rated read ready said seen sent served shown stored taken told tried waiting wanted
    written""".split()  # noqa: SIM905 – a list would take forty lines
)
PRONOUNS = frozenset(
    """after another apart before behind beside each here mine more now one other others ours rest theirs
    """.split()  # noqa: SIM905
)
ANYTHING = frozenset(["data", "item", "obj", "result", "value"])
WORDS = PARTICIPLES | PRONOUNS | ANYTHING
MOST_SHARE = 0.03
MOST_SHARED_CLASSES = 20
"""Class names that stand in several rooms."""


class Name(NamedTuple):
    text: str
    path: Path
    line: int
    is_class: bool = False

    @property
    def room(self) -> str:
        """The folder in which a class name stands once."""
        top, *below = self.path.parts
        return f"{top}/{below[0]}" if top in ("parts", "proxy") and below[1:] else top


def names_in(path: Path) -> Iterator[Name]:
    """Yield what a file names: variables, arguments and classes."""
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield Name(node.id, path, node.lineno)
        elif isinstance(node, ast.arg) and node.arg not in ("self", "cls"):
            yield Name(node.arg, path, node.lineno)
        elif isinstance(node, ast.ClassDef):
            yield Name(node.name, path, node.lineno, is_class=True)


def all_names(paths: list[Path]) -> list[Name]:
    files = [file for path in paths for file in ([path] if path.is_file() else sorted(path.rglob("*.py")))]
    return [name for file in files for name in names_in(file)]


def is_vague(name: Name) -> bool:
    word = name.text.strip("_").lower()
    return word in (PARTICIPLES | PRONOUNS if name.is_class else WORDS)


def faults(names: list[Name]) -> Iterator[str]:
    """Yield what is wrong with all names together."""
    classes = [name for name in names if name.is_class]
    for name in filter(is_vague, classes):
        yield f"{name.path}:{name.line} the class {name.text} is named by a participle or a pronoun"
    rooms: dict[str, list[Name]] = defaultdict(list)
    for name in classes:
        if not name.text.startswith("_"):
            rooms[name.text].append(name)
    for same in rooms.values():
        for room, count in Counter(name.room for name in same).items():
            if count > 1:
                places = ", ".join(f"{name.path}:{name.line}" for name in same if name.room == room)
                yield f"{same[0].text} is the name of {count} classes in {room}: {places}"
    shared = sorted(text for text, same in rooms.items() if len(same) > 1)
    if len(shared) > MOST_SHARED_CLASSES:
        yield f"{len(shared)} class names stand more than once, at most {MOST_SHARED_CLASSES} may: {', '.join(shared)}"
    others = [name for name in names if not name.is_class]
    share = sum(map(is_vague, others)) / len(others)
    if share > MOST_SHARE:
        words = Counter(name.text.strip("_").lower() for name in filter(is_vague, others))
        common = ", ".join(f"{word} {count}" for word, count in words.most_common(8))
        yield f"{share:.1%} of {len(others)} names don't say what they hold, at most {MOST_SHARE:.0%} may: {common}"


def main() -> int:
    if sys.argv[1:]:
        for name in filter(is_vague, all_names([Path(path) for path in sys.argv[1:]])):
            sys.stdout.write(f"{name.path}:{name.line} {name.text}\n")
        return 0
    wrong = list(faults(all_names([Path(room) for room in ROOMS])))
    sys.stdout.writelines(f"{line}\n" for line in wrong)
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
