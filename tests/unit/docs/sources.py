"""The strings in the source that may become messages. What is filled in at run time is HOLE."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

HOLE = "\0"
PLACES = ("argus", "plugins", "roles", "playbooks", "tools", "images", "Makefile")
DOCUMENTATION = {"DOCUMENTATION", "EXAMPLES", "RETURN"}
TEXT_SUFFIXES = {".yml", ".yaml", ".sh"}
# Jinja, make and shell fill these in.
FILLED = re.compile(r"\{\{.*?\}\}|\{%.*?%\}|\$\{[^}]*\}|\$\([^)]*\)|\$\w+", re.DOTALL)


def plain(text: str) -> str:
    return " ".join(text.split())


def value_of(node: ast.AST) -> str | None:
    """The text of a string, an f-string or a sum of them; None for anything else."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        return "".join(value_of(part) or HOLE for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = value_of(node.left), value_of(node.right)
        return None if left is None and right is None else f"{left or HOLE}{right or HOLE}"
    return None


def is_documentation(statement: ast.AST) -> bool:
    """Docstrings, and the DOCUMENTATION, EXAMPLES and RETURN of modules: they are no messages."""
    if isinstance(statement, ast.Assign):
        return any(isinstance(name, ast.Name) and name.id in DOCUMENTATION for name in statement.targets)
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def of_python(text: str) -> Iterator[str]:
    waiting: list[ast.AST] = [ast.parse(text)]
    while waiting:
        node = waiting.pop()
        value = value_of(node)
        if value:
            yield plain(value)
            # Of a table, what is indented below a row is a message.
            yield from map(plain, re.findall(r"(?:^    .*\n?)+", value, re.M))
        children = [child for child in ast.iter_child_nodes(node) if not is_documentation(child)]
        # The pieces of a string are no strings of their own; what is filled in may hold some.
        waiting += [child for child in children if value is None or value_of(child) is None]


def of_text(text: str) -> Iterator[str]:
    yield plain(FILLED.sub(HOLE, text))


def files(repo: Path) -> Iterator[Path]:
    for place in PLACES:
        path = repo / place
        yield from [path] if path.is_file() else sorted(path.rglob("*"))


def strings(repo: Path) -> dict[str, str]:
    """All strings, each with a file that has it."""
    found: dict[str, str] = {}
    for file in files(repo):
        if file.suffix == ".py":
            texts = of_python(file.read_text(encoding="utf-8"))
        elif file.suffix in TEXT_SUFFIXES or file.name == "Makefile":
            texts = of_text(file.read_text(encoding="utf-8"))
        else:
            continue
        found |= dict.fromkeys(texts, str(file.relative_to(repo)))
    return found
