"""docs/durations.md has the values of the constants that it names."""

from __future__ import annotations

import ast
import re

from unit.docs import pages

PAGE = pages.REPO / "docs" / "durations.md"
ROW = re.compile(r"\| (?P<number>\d+) (?P<unit>s|min|h|d) \| `(?P<file>\S+): (?P<name>\w+)` \|$")
UNITS = {"s": 1, "min": 60, "h": 3600, "d": 86_400}


def number(node: ast.AST) -> float | None:
    """The value of a number, or of a product of numbers."""
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        return node.value
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        left, right = number(node.left), number(node.right)
        return None if left is None or right is None else left * right
    return None


def constants(text: str) -> dict[str, float]:
    """The numbers that a module names at its top level, also several in one line."""
    found: dict[str, float] = {}
    for statement in ast.parse(text).body:
        pairs: list[tuple[ast.expr, ast.expr]] = []
        if isinstance(statement, ast.AnnAssign) and statement.value:
            pairs += [(statement.target, statement.value)]
        elif isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Tuple):
            values = statement.value.elts if isinstance(statement.value, ast.Tuple) else []
            pairs += zip(statement.targets[0].elts, values, strict=False)
        elif isinstance(statement, ast.Assign):
            pairs += [(statement.targets[0], statement.value)]
        for target, value in pairs:
            seconds = number(value)
            if isinstance(target, ast.Name) and seconds is not None:
                found[target.id] = seconds
    return found


def actual(file: str, name: str) -> float | None:
    for folder in ("argus", "plugins/module_utils", "plugins"):
        path = pages.REPO / folder / file
        if path.is_file():
            return constants(path.read_text(encoding="utf-8")).get(name)
    return None


def test_every_duration_is_that_of_the_source() -> None:
    rows = [found for line in pages.lines(PAGE) if (found := ROW.search(line.text))]
    assert len(rows) > 20
    wrong = [
        f"{row['file']}: {row['name']} is {seconds}, not {row['number']} {row['unit']}"
        for row in rows
        if (seconds := actual(row["file"], row["name"])) != int(row["number"]) * UNITS[row["unit"]]
    ]
    assert not wrong, "\n".join(wrong)
