"""Values, attributes, functions and classes are named by nouns, not by the words of a dialect."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
FORBIDDEN = {*("asked", "each", "found", "given", "known", "own", "there", "told", "wanted", "what", "wrong")}


def names(tree: ast.AST) -> Iterator[tuple[int, str | None]]:
    """The names that a file gives, with their lines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id if isinstance(node, ast.Name) else node.attr
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.ExceptHandler | ast.MatchAs):
            yield node.lineno, node.name
        elif isinstance(node, ast.alias):
            yield node.lineno, node.asname


def test_names_are_nouns() -> None:
    listed = subprocess.run(["git", "ls-files", "*.py"], cwd=REPO, capture_output=True, text=True, check=True)
    files = {name: ast.parse((REPO / name).read_text("utf-8")) for name in listed.stdout.split()}
    assert len(files) > 300
    assert not [f"{file}:{line}: {name}" for file in files for line, name in names(files[file]) if name in FORBIDDEN]
