"""The strings in the source that may become messages. What is filled in at run time is HOLE."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache

from docs import pages

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


def of_python(text: str) -> Iterator[str]:
    """The strings of a file without its documentation."""
    waiting: list[ast.AST] = [ast.parse(text)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in DOCUMENTATION:
            continue
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue
        if value := value_of(node):
            yield plain(value)
            # Text that is indented below a row of a table is a message.
            yield from map(plain, re.findall(r"(?:^    .*\n?)+", value, re.M))
        # The pieces of a string are no strings of their own; what is filled in may hold some.
        children = ast.iter_child_nodes(node)
        waiting += [child for child in children if value is None or value_of(child) is None]


@cache
def strings() -> set[str]:
    texts: set[str] = set()
    for file in (file for place in PLACES for file in (pages.REPO / place, *(pages.REPO / place).rglob("*"))):
        if file.suffix == ".py":
            texts.update(of_python(file.read_text(encoding="utf-8")))
        elif file.suffix in TEXT_SUFFIXES or file.name == "Makefile":
            texts.add(plain(FILLED.sub(HOLE, file.read_text(encoding="utf-8"))))
    return texts
