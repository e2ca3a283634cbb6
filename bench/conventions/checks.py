"""Checkers of house conventions: an answer → whether its first block of code keeps the convention.

An answer without code that parses keeps none. A checker of certain code (file access, texts) wants to see such code.
"""

from __future__ import annotations

import ast
import tokenize
from collections.abc import Callable

from bench.conventions.code import Function, first_block, functions, python, tokens

Check = Callable[[str], bool]
"""Whole text of an answer → kept."""
LOG_CALLS = frozenset(["debug", "info", "warning", "error", "exception", "critical", "log"])


def of_tree(check: Callable[[ast.Module], bool]) -> Check:
    def kept(text: str) -> bool:
        tree = python(text)
        return tree is not None and check(tree)

    return kept


def of_tokens(check: Callable[[list[tokenize.TokenInfo]], bool]) -> Check:
    def kept(text: str) -> bool:
        block = first_block(text)
        return python(text) is not None and block is not None and check(tokens(block.code))

    return kept


def type_hints(tree: ast.Module) -> bool:
    def is_hinted(function: Function) -> bool:
        listed = function.args
        arguments = [*listed.posonlyargs, *listed.args, *listed.kwonlyargs]
        arguments += [argument for argument in (listed.vararg, listed.kwarg) if argument]
        hinted = all(argument.annotation for argument in arguments if argument.arg not in ("self", "cls"))
        return hinted and function.returns is not None

    return _every(tree, is_hinted)


def docstrings(tree: ast.Module) -> bool:
    return _every(tree, lambda function: bool(ast.get_docstring(function)))


def one_line_docstrings(tree: ast.Module) -> bool:
    def is_one_line(function: Function) -> bool:
        return bool(ast.get_docstring(function)) and function.body[0].lineno == function.body[0].end_lineno

    return _every(tree, is_one_line)


def no_comments(parts: list[tokenize.TokenInfo]) -> bool:
    return all(part.type != tokenize.COMMENT for part in parts)


def single_quotes(parts: list[tokenize.TokenInfo]) -> bool:
    """Docstrings, and texts that hold a single quote, may have double ones."""
    names = {"STRING", "FSTRING_START"}
    texts = [part.string.lstrip("rRbBuUfF") for part in parts if tokenize.tok_name[part.type] in names]
    short = [text for text in texts if not text.startswith(('"""', "'''")) and "'" not in text[1:-1]]
    return bool(short) and all(text.startswith("'") for text in short)


def logs(tree: ast.Module) -> bool:
    calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    prints = any(isinstance(call, ast.Name) and call.id == "print" for call in calls)
    return not prints and any(isinstance(call, ast.Attribute) and call.attr in LOG_CALLS for call in calls)


def uses_pathlib(tree: ast.Module) -> bool:
    modules = _modules(tree)
    opens = any(
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "open"
        for node in ast.walk(tree)
    )
    return "pathlib" in modules and not modules & {"os", "shutil", "glob"} and not opens


def f_strings(tree: ast.Module) -> bool:
    nodes = list(ast.walk(tree))
    return any(isinstance(node, ast.JoinedStr) for node in nodes) and not any(map(_formats_otherwise, nodes))


def no_example(tree: ast.Module) -> bool:
    """Nothing is called at the top level."""
    definitions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)
    statements = [node for node in tree.body if not isinstance(node, definitions)]
    return not any(isinstance(child, ast.Call) for node in statements for child in ast.walk(node))


def raises(tree: ast.Module) -> bool:
    nodes = list(ast.walk(tree))
    returns_none = any(
        isinstance(node, ast.Return) and (node.value is None or _is_none(node.value)) for node in nodes
    )
    return not returns_none and any(isinstance(node, ast.Raise) for node in nodes)


def future_import(tree: ast.Module) -> bool:
    first = tree.body[1:] if ast.get_docstring(tree) else tree.body
    return bool(first) and isinstance(first[0], ast.ImportFrom) and first[0].module == "__future__"


def early_return(tree: ast.Module) -> bool:
    """No ``else`` comes behind a branch that returns or raises."""
    return not any(
        isinstance(node, ast.If) and node.orelse and isinstance(node.body[-1], ast.Return | ast.Raise)
        for node in ast.walk(tree)
    )


def only_code(text: str) -> bool:
    block = first_block(text)
    return block is not None and not block.around


def _every(tree: ast.Module, check: Callable[[Function], bool]) -> bool:
    return all(map(check, functions(tree)))


def _modules(tree: ast.Module) -> set[str]:
    names = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return {name.split(".")[0] for name in names}


def _formats_otherwise(node: ast.AST) -> bool:
    """Return whether a text is put together by ``%``, ``+`` or ``format``."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod | ast.Add):
        sides = (node.left,) if isinstance(node.op, ast.Mod) else (node.left, node.right)
        return any(map(_is_text, sides))
    method = node.func if isinstance(node, ast.Call) else None
    return isinstance(method, ast.Attribute) and method.attr == "format" and _is_text(method.value)


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _is_none(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is None
