"""The code of an answer: its first block, and how its parts are read."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from dataclasses import dataclass

_BLOCK = re.compile(r"^```[ \t]*(?P<language>\w*)[^\n]*\n(?P<code>.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)
_BLOCK_AND_TEXT = re.compile(_BLOCK.pattern + r"\s*\S", re.MULTILINE | re.DOTALL)

Function = ast.FunctionDef | ast.AsyncFunctionDef
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True, slots=True)
class Block:
    language: str
    """As the fence names it, in lower case; empty if it doesn't."""
    code: str
    around: str
    """The text before and behind the block."""


def first_block(text: str) -> Block | None:
    """Return the first block of code that is complete; an answer that is nothing but Python functions is one, too."""
    if match := _BLOCK.search(text):
        around = text[: match.start()] + text[match.end() :]
        return Block(match["language"].lower(), match["code"], around.strip())
    if "```" in text:
        return None
    tree = parsed(text)
    return (
        Block("python", text, "") if tree and any(isinstance(node, FUNCTIONS) for node in tree.body) else None
    )


def has_text_behind_block(text: str) -> bool:
    """Return whether an answer goes on behind its first block: no convention is judged by more."""
    return bool(_BLOCK_AND_TEXT.search(text))


def parsed(code: str) -> ast.Module | None:
    try:
        return ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def python(text: str) -> ast.Module | None:
    """Return the first block of an answer as Python; None if there is none that holds a function or class."""
    block = first_block(text)
    tree = parsed(block.code) if block else None
    return (
        tree
        if tree and any(isinstance(node, (*FUNCTIONS, ast.ClassDef)) for node in ast.walk(tree))
        else None
    )


def functions(tree: ast.Module) -> list[Function]:
    return [node for node in ast.walk(tree) if isinstance(node, FUNCTIONS)]


def tokens(code: str) -> list[tokenize.TokenInfo]:
    """Return the tokens of code that parses."""
    return list(tokenize.generate_tokens(io.StringIO(code).readline))
