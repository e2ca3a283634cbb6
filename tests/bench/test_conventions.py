"""The bench of conventions: checkers, the sandbox, and an answer file that goes on where it stopped."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.conventions.catalogue import BY_NAME, CONVENTIONS, Convention
from bench.conventions.code import first_block, has_text_behind_block
from bench.conventions.questions import EXAM, TEACHING
from bench.conventions.sandbox import runs

BARE = "def f(x):\n    return x"
DOCUMENTED = 'def f(x):\n    """Return x."""\n    return x'
LONG = 'def f(x):\n    """\n    Return x.\n    """\n    return x'
SAYS = 'def f(x):\n    print("x is", x)'

VERDICTS = [
    ("type-hints", "def f(x: int, *rest: int, **options: str) -> int:\n    return x", True),
    ("type-hints", "class A:\n    def f(self, x: int) -> int:\n        return x", True),
    ("type-hints", "def f(x: int):\n    return x", False),
    ("type-hints", "def f(x: int, *rest) -> int:\n    return x", False),
    ("type-hints", "x: int = 3", False),
    ("docstrings", DOCUMENTED, True),
    ("docstrings", f"{DOCUMENTED}\n{BARE}", False),
    ("one-line-docstrings", DOCUMENTED, True),
    ("one-line-docstrings", LONG, False),
    ("one-line-docstrings", BARE, False),
    ("no-comments", 'def f():\n    return "#"', True),
    ("no-comments", "def f():\n    return 1  # one", False),
    ("logging", "import logging\ndef f(x):\n    logging.getLogger().info(x)", True),
    ("logging", f"import logging\n{SAYS}\n    logging.info(x)", False),
    ("logging", BARE, False),
    ("pathlib", "from pathlib import Path\ndef f(p):\n    return Path(p).open().read()", True),
    ("pathlib", "from pathlib import Path\ndef f(p):\n    return open(Path(p)).read()", False),
    ("pathlib", "import os\nimport pathlib\ndef f(p):\n    return os.stat(p)", False),
    ("pathlib", BARE, False),
    ("f-strings", 'def f(x):\n    print(f"{x}")', True),
    ("f-strings", 'def f(x):\n    print(f"{x}" + "a")', False),
    ("f-strings", 'def f(x):\n    print("%s" % x, f"{x}")', False),
    ("f-strings", 'def f(x):\n    print("{}".format(x), f"{x}")', False),
    ("f-strings", SAYS, False),
    ("single-quotes", 'def f(x):\n    """Return."""\n    return f\'{x}\' + \'a\' + "it\'s"', True),
    ("single-quotes", SAYS, False),
    ("single-quotes", BARE, False),
    ("no-example", f"import re\nLIMIT = 3\n{BARE}", True),
    ("no-example", f"{BARE}\nprint(f(1))", False),
    ("no-example", f"{BARE}\ny = f(1)", False),
    ("no-example", f'{BARE}\nif __name__ == "__main__":\n    f(1)', False),
    ("raise", "def f(x):\n    if not x:\n        raise ValueError\n    return x", True),
    ("raise", "def f(x):\n    if not x:\n        raise ValueError\n    return None", False),
    ("raise", BARE, False),
    ("future-import", f'"""A file."""\nfrom __future__ import annotations\n{BARE}', True),
    ("future-import", f"import re\n{BARE}", False),
    ("early-return", "def f(x):\n    if x:\n        return 1\n    return 2", True),
    ("early-return", "def f(x):\n    if x:\n        return 1\n    else:\n        return 2", False),
]


@pytest.mark.parametrize(("name", "code", "is_kept"), VERDICTS)
def test_a_checker_reads_the_code(name: str, code: str, is_kept: bool) -> None:
    assert BY_NAME[name].check(f"Sure!\n\n```python\n{code}\n```\nIt works.") is is_kept


def test_every_candidate_is_checked_both_ways() -> None:
    assert {(name, is_kept) for name, _, is_kept in VERDICTS} >= {
        (convention.name, is_kept)
        for convention in CONVENTIONS
        for is_kept in (True, False)
        if convention.name != "only-code"
    }


@pytest.mark.parametrize("convention", CONVENTIONS, ids=lambda convention: convention.name)
@pytest.mark.parametrize(
    "text", ["", "I can't.", "```python\ndef f(:\n```", "```python\ndef f(x):\n    return"]
)
def test_no_convention_is_kept_without_code(convention: Convention, text: str) -> None:
    kept = convention.check(text)
    # Only whether there is anything beside it counts there.
    assert not kept or (convention.name == "only-code" and first_block(text) is not None)


@pytest.mark.parametrize(
    ("text", "is_kept"),
    [
        (f"```python\n{BARE}\n```", True),
        (BARE, True),
        (f"```\n{BARE}\n```\n\n", True),
        (f"Sure:\n```python\n{BARE}\n```", False),
        (f"```python\n{BARE}\n```\nIt works.", False),
        ("Use a loop.", False),
    ],
)
def test_only_code_is_a_single_block(text: str, is_kept: bool) -> None:
    assert BY_NAME["only-code"].check(text) is is_kept


@pytest.mark.parametrize(
    ("text", "is_over"),
    [
        ("```python\nx\n", False),
        ("```python\nx\n```", False),
        ("```python\nx\n```\n\n", False),
        ("```python\nx\n```\n\nIt", True),
        ("So:\n```\nx\n```\nIt", True),
    ],
)
def test_nobody_listens_on_behind_the_first_block(text: str, is_over: bool) -> None:
    assert has_text_behind_block(text) is is_over


def test_questions_are_distinct_and_enough() -> None:
    questions = [question for groups in (EXAM, TEACHING) for group in groups.values() for question in group]
    assert (
        len({question.text for question in questions})
        == len({question.key for question in questions})
        == len(questions)
    )
    assert all(question.assertions for group in EXAM.values() for question in group)
    for convention in CONVENTIONS:
        assert len(convention.exam) >= 24
        assert len(convention.teaching) >= 16
        assert len(set(convention.sentences)) == 3
        assert 5 <= len(set(convention.comments)) <= 8


def test_right_code_runs() -> None:
    assert runs("def add(a, b):\n    print(a)\n    return a + b", "add", ["add(1, 2) == 3"])
    assert not runs("def add(a, b):\n    return a - b", "add", ["add(1, 2) == 3"])
    assert runs("def plus(a, b):\n    return a + b", "add", ["add(1, 2) == 3"])  # under another name
    assert not runs("def add(a, b):\n    return", "add", ["add(1, 2) == 3"])
    assert runs("def add(a, b):\n    return a + b\n\nadd(1, 'a')", "add", ["add(1, 2) == 3"])


@pytest.mark.parametrize(
    "code",
    [
        "def size(path):\n    return len(open(path).read())",
        "def size(path):\n    return len(path.read_text())",
        "import os\ndef size(path):\n    return os.path.getsize(path)",
    ],
)
def test_a_function_takes_paths_as_texts_or_as_paths(code: str) -> None:
    assert runs(code, "size", ['write("a.txt", "abc") or size(at("a.txt")) == 3'])


@pytest.mark.parametrize(
    "body",
    [
        "while True: pass",
        "return len(bytearray(2**32)) > 0",
        "import os; os.fork(); return True",
        "import subprocess; subprocess.run(['true']); return True",
        "import multiprocessing; return True",
        "open('OUTSIDE', 'w').write('x'); return True",
        "import pathlib; pathlib.Path('OUTSIDE').mkdir(); return True",
        "import os, pathlib; os.chdir(pathlib.Path('OUTSIDE').parent); open('new', 'w'); return True",
        "import shutil; shutil.rmtree('..'); return True",
        "open('big', 'w').write('x' * 2**24); return True",
        "import socket; socket.create_connection(('127.0.0.1', 9)); return True",
        "import sys; sys.exit(0)",
        "import os; os._exit(0)",
        "return input()",
        "import ctypes; ctypes.CDLL(None); return True",
    ],
)  # fmt: skip
def test_code_that_goes_astray_does_not_run(body: str, tmp_path: Path) -> None:
    outside = body.replace("OUTSIDE", str(tmp_path / "outside"))
    assert not runs(of_lines(outside), "f", ["f()"])
    assert not [*tmp_path.iterdir()]


def test_the_same_code_runs_without_its_fault() -> None:
    """The refusals above are the sandbox's, not mistakes of the test."""
    body = "import os, time; os.mkdir('d'); os.chdir('d'); open('a', 'w'); time.sleep(1000); return True"
    assert runs(of_lines(body), "f", ["f()"])


def of_lines(body: str) -> str:
    return "\n    ".join(["def f():", *body.split("; ")])
