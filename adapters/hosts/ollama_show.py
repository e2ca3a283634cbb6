"""Read Ollama's description of a model (/api/show), and what a model made from a file must be given.

Ollama inherits nothing from the base when it creates a model from ``files``: template, system prompt, parameters,
messages, license, renderer and parser must be sent. Names are those of Ollama's api/types.go and parser/parser.go.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# A line of a Modelfile. Ollama quotes a text of several lines, with """ if it contains a quotation mark.
_COMMAND = re.compile(
    r'^(?P<name>[A-Z]+) (?:"""(?P<long>.*?)"""|"(?P<quoted>[^"]*)"|(?P<plain>[^\n]*))$',
    re.MULTILINE | re.DOTALL,
)
_WEIGHTS = re.compile(r"sha256[-:](?P<digest>[0-9a-f]{64})$")
# "stop   "<|im_end|>"": a name, spaces, a value as Go writes it.
_PARAMETER = re.compile(r"^(?P<name>\w+)\s+(?P<value>.+)$", re.MULTILINE)
# The parameter that is a list in Ollama; /api/show has a line for each entry.
_LIST = "stop"
# Ollama shows this if a model has no template of its own.
_NO_TEMPLATE = "{{ .Prompt }}"
_RELEASE = re.compile(r"(\d+)\.(\d+)\.(\d+)")

FIRST_WITHOUT_ADAPTERS = (0, 34, 1)
"""From this release on, /api/create answers "LoRA adapters are no longer supported"."""


def takes_adapters(release: str) -> bool:
    """Tell by /api/version; True if it doesn't tell, as a build from source (0.0.0) doesn't."""
    match = _RELEASE.match(release)
    return match is None or tuple(map(int, match.groups())) < FIRST_WITHOUT_ADAPTERS


@dataclass(frozen=True, slots=True)
class ModelDescription:
    """One model, as /api/show describes it."""

    weights: tuple[Path, ...]
    """Its files in Ollama's directory, the model first; a model that sees has a second one."""
    sees: bool
    """The further files are projectors for images or sound."""
    adapters: tuple[str, ...]
    selected_template: str
    """The template that Ollama applies: its own (Go), or the one in the GGUF (Jinja)."""
    members: dict[str, Any]
    """Members of a /api/create request that make a model from a file behave like this one; they may be empty."""
    capabilities: frozenset[str]

    @property
    def digests(self) -> tuple[str, ...]:
        """The weights' "sha256:<hex>"."""
        matches = (_WEIGHTS.search(str(path)) for path in self.weights)
        return tuple(f"sha256:{match['digest']}" for match in matches if match)

    def inherited(self) -> dict[str, Any]:
        """Return the members of a /api/create request that have a content."""
        return {name: content for name, content in self.members.items() if content}

    def lost_in(self, copy: ModelDescription) -> list[str]:
        """Return what a model that was made to behave like this one has otherwise."""
        same = ("system", "renderer", "parser", "parameters", "messages")
        lost = [name for name in same if self.members[name] != copy.members[name]]
        if self.selected_template != copy.selected_template:
            lost.insert(0, "template")
        return lost + sorted(
            f"the capability {capability!r}" for capability in self.capabilities - copy.capabilities
        )


def read_description(answer: Any) -> ModelDescription:
    """Read an answer of /api/show; what it lacks is empty."""
    answer = answer if isinstance(answer, dict) else {}
    commands: dict[str, list[str]] = {}
    for match in _COMMAND.finditer(str(answer.get("modelfile", ""))):
        text = match["long"] or match["quoted"] or match["plain"] or ""
        commands.setdefault(match["name"], []).append(text)

    def first(name: str) -> str:
        return next(iter(commands.get(name, [])), "")

    template = first("TEMPLATE")
    selected_template = str(answer.get("template") or template)
    renderer = str(answer.get("renderer") or first("RENDERER"))
    # A Jinja template comes with the GGUF, and sent as Ollama's own it would be wrong.
    is_own = template == selected_template and (template != _NO_TEMPLATE or bool(renderer))
    return ModelDescription(
        weights=tuple(Path(path.strip()) for path in commands.get("FROM", [])),
        sees=bool(answer.get("projector_info")),
        adapters=tuple(commands.get("ADAPTER", [])),
        selected_template=selected_template,
        members={
            "template": template if is_own else "",
            "system": str(answer.get("system") or ""),
            "renderer": renderer,
            "parser": str(answer.get("parser") or first("PARSER")),
            "parameters": _parameters(str(answer.get("parameters") or "")),
            "messages": list(answer.get("messages") or []),
            "license": str(answer.get("license") or ""),
            "requires": str(answer.get("requires") or ""),
        },
        capabilities=frozenset(map(str, answer.get("capabilities") or [])),
    )


def _parameters(text: str) -> dict[str, Any]:
    parameters: dict[str, Any] = {}
    for match in _PARAMETER.finditer(text):
        name, setting = match["name"], _value(match["value"].strip())
        if name == _LIST:
            parameters.setdefault(name, []).append(setting)
        else:
            parameters[name] = setting
    return parameters


def _value(text: str) -> Any:
    """Read a value as Go writes it with %#v; texts and numbers look the same in Python."""
    if text in ("true", "false"):
        return text == "true"
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
