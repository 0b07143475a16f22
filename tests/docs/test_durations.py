"""docs/durations.md has the values of the constants that it names."""

from __future__ import annotations

import contextlib
import importlib
import re

from docs import pages

PAGE = pages.REPO / "docs" / "durations.md"
ROW = re.compile(r"\| (?P<number>\d+) (?P<unit>s|min|h|d) \| `(?P<file>\S+): (?P<name>\w+)` \|$")
PLUGINS = "ansible_collections.argus.verl.plugins"
UNITS = {"s": 1, "min": 60, "h": 3600, "d": 86_400}


def actual(file: str, name: str) -> object:
    for package in ("argus", PLUGINS + ".module_utils", PLUGINS):
        with contextlib.suppress(ModuleNotFoundError):
            return getattr(
                importlib.import_module(f"{package}.{file.removesuffix('.py').replace('/', '.')}"), name, None
            )
    return None


def test_every_duration_is_that_of_the_source() -> None:
    rows = [match for line in pages.lines(PAGE) if (match := ROW.search(line.text))]
    assert len(rows) > 20
    outdated = [
        f"{row['file']}: {row['name']} is {seconds}, not {row['number']} {row['unit']}"
        for row in rows
        if (seconds := actual(row["file"], row["name"])) != int(row["number"]) * UNITS[row["unit"]]
    ]
    assert not outdated, "\n".join(outdated)
