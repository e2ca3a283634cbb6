"""What decides which program a check runs, and how: files and variables. Pure.

Who writes one of them can have tests pass that fail. So after that, a conversation gets no good rating any more.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePosixPath

from burnish.parts.signals.shell import ASSIGNMENT, Simple

PROGRAMS = frozenset({
    "pytest", "py.test", "jest", "vitest", "mocha", "tox", "nox", "go", "cargo", "make", "just", "npm", "npx", "pnpm",
    "yarn", "bun", "node", "deno", "gradle", "mvn", "ctest", "rspec", "phpunit", "dotnet", "swift", "mix", "python",
    "python3", "mypy", "pyright", "ruff", "eslint", "flake8", "tsc", "javac", "coverage", "uv", "poetry",
})  # fmt: skip
"""Programs that check, and those that run them: a file of that name may be found first."""
MODULES = frozenset({"pytest", "_pytest", "unittest", "pluggy", "tox", "nox", "mypy", "flake8"})
"""A module of that name in the project wins over the one that is installed."""
STARTS = frozenset({
    "sitecustomize.py", "usercustomize.py", ".bashrc", ".bash_profile", ".bash_login", ".bash_aliases", ".profile",
    ".zshrc", ".zshenv", ".zprofile", ".envrc", ".npmrc", "gnumakefile", "config.fish",
})  # fmt: skip
"""Files that a shell or an interpreter reads when it starts, and one that wins over a Makefile."""
INSTALLED_IN = frozenset({"site-packages", "dist-packages", "node_modules"})
VARIABLES = re.compile(
    r"\A(?:PATH|PYTHON\w*|NODE_(?:PATH|OPTIONS)|LD_\w+|DYLD_\w+|BASH_ENV|ENV|BASH_FUNC\w*|GO(?:FLAGS|ROOT|ENV)|RUSTC\w*"
    r"|CARGO_\w+|PYTEST_\w+|MAKE(?:FLAGS|FILES)|JEST_\w+|npm_config_\w+|NPM_CONFIG_\w+|RUBYOPT|PERL5(?:OPT|LIB)|CC|CXX)="
)
HARMLESS = re.compile(
    r"\$\{?\w*PATH\}?|\.|\./?(?:src|lib)|src|lib|\$\{?PWD\}?(?:/(?:src|lib))?"
    r"|(?:/usr|/opt|/bin|/sbin|/snap|/nix)(?:/[\w.+-]+)*|(?:~|\$\{?HOME\}?|/root|/home/[\w.-]+)/\.?(?:local|cargo|\w+env|nvm|go)"
    r"(?:/[\w.+-]+)*|(?:[\w./$-]*/)?\.?v?env/bin|(?:[\w./$-]*/)?node_modules/\.bin|"
)
"""Places in PATH or PYTHONPATH that lead to nothing that an agent wrote, or that are searched anyway."""
HARMLESS_VALUES = re.compile(
    r"\A(?:PYTHON(?:UNBUFFERED|DONTWRITEBYTECODE|HASHSEED|IOENCODING|UTF8|FAULTHANDLER|ASYNCIODEBUG)|CARGO_TERM_\w+|CARGO_INCREMENTAL"
    r"|CARGO_BUILD_JOBS|CARGO_TARGET_DIR|PYTEST_XDIST_\w+|PYTHONWARNINGS|NPM_CONFIG_LOGLEVEL|npm_config_loglevel)="
)
NARROWS = re.compile(r"(?:PYTEST_ADDOPTS|RUSTFLAGS)=")
"""For one command: that is an option, as if it stood behind the program."""
EXPORTS = frozenset({"export", "declare", "typeset", "readonly"})
SETTINGS = {
    ("go", "env"),
    ("npm", "config"),
    ("npm", "set"),
    ("pnpm", "config"),
    ("yarn", "config"),
    ("pip", "config"),
}
"""Programs with their first word that write the settings of a runner."""


def steers(path: str) -> bool:
    """Whether a file decides which program a check runs."""
    place = PurePosixPath(path.strip("'\"").replace("\\", "/"))
    name, parents = place.name.lower(), {part.lower() for part in place.parts[:-1]}
    if name in STARTS or place.suffix in (".pth", ".mk") or parents & (INSTALLED_IN | MODULES):
        return True
    return name in PROGRAMS or (place.suffix == ".py" and place.stem.lower() in MODULES)


def steered(command: Sequence[Simple]) -> bool:
    """Whether a command sets what decides that."""
    return any(map(_steers, command))


def _steers(simple: Simple) -> bool:
    if any(_sets(word) for word in simple.prefix if not (simple.words and NARROWS.match(word))):
        return True
    if simple.program in EXPORTS:
        return any(map(_sets, simple.words[1:]))
    if simple.program in ("source", "."):
        return not "".join(simple.words[1:2]).endswith("bin/activate")
    return simple.words[:2] in SETTINGS and len(simple.words) > len(simple.words[:2])


def _sets(word: str) -> bool:
    if not (ASSIGNMENT.match(word) and VARIABLES.match(word)) or HARMLESS_VALUES.match(word):
        return False
    name, _, text = word.partition("=")
    if name in ("PATH", "PYTHONPATH", "NODE_PATH"):
        return not all(HARMLESS.fullmatch(folder) for folder in text.split(":"))
    return True
