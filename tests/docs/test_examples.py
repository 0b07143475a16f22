"""Tables of findings in examples of output show messages that the source can write."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from docs import pages, sources

TITLES = re.compile(r"SEVERITY  +WHERE  +WHAT  +WHAT TO DO")
# How much of a message has to be the source's own words. The rest is filled in, or is another message beside it.
LEAST = 0.3


@cache
def patterns() -> tuple[tuple[int, re.Pattern[str]], ...]:
    """The strings of the source that have words of their own, each with how many letters these are."""
    compiled = []
    for source in sources.strings():
        parts = source.split(sources.HOLE)
        if sum(map(len, parts)) >= 8:
            compiled.append((sum(map(len, parts)), re.compile(".*?".join(map(re.escape, parts)))))
    return tuple(compiled)


def is_written(message: str) -> bool:
    return any(
        pattern.fullmatch(message) or (letters >= LEAST * len(message) and pattern.search(message))
        for letters, pattern in patterns()
    )


def rows(text: str) -> Iterator[list[str]]:
    """The rows of the tables of findings in a text, with wrapped cells joined."""
    columns: list[int] = []
    joined: list[list[str]] = []
    for line in [*text.splitlines(), ""]:
        if TITLES.match(line):
            columns = [title.start() for title in re.finditer(r"(?:^|(?<=  ))\S", line)]
        elif columns and line.startswith(("error ", "warning ", " ")):
            cells = [line[start:end].strip() for start, end in zip(columns, [*columns[1:], None], strict=True)]
            if cells[0]:
                joined.append(cells)
            else:
                joined[-1] = [f"{before} {cell}".strip() for before, cell in zip(joined[-1], cells, strict=True)]
        else:
            columns = []
    yield from joined


def examples() -> Iterator[tuple[str, str]]:
    for page in pages.pages():
        for row in rows(page.read_text(encoding="utf-8")):
            for message in filter(None, row[2:]):
                yield str(page.relative_to(pages.REPO)), message


def test_findings_in_examples_are_those_of_the_source() -> None:
    shown = list(examples())
    assert len(shown) > 15
    assert not is_written("7 bananas were found in the machine, which is fewer than the 8 that it should have")
    lost = [f"{page}: {message}" for page, message in shown if not is_written(message)]
    assert not lost, f"{len(lost)} messages in examples are not in the source:\n" + "\n".join(lost)
