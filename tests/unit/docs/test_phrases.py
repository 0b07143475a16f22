"""Phrases that are no plain technical English, and came back before."""

from __future__ import annotations

import re

from unit.docs import pages

FORBIDDEN = re.compile(
    r"""as\ it\ says | \bnobody\b | \bsomebody\b | \bwhoever\b | \bno\ word\ of\b | \b(?:is|are)\ said\b
    | \bsay\ `?-e\b | \bsay\ ` | what\ was\ never\ run | what\ was\ tried | \bmend\b | \bwhat\ is\ there\b
    | \ball\ that\ is\ wrong\b | \bof\ which\ the\b | \bspeaks?\ against\b | \bsigns?\ of\ life\b
    | \btaken\ up\ again\b | \bkeepers?\b(?!\.) | \bways?\ out\b | \bthe\ same\ goes\b | \blook(?:ed|s)\ at\b""",
    re.IGNORECASE | re.VERBOSE,
)


def prose(text: str) -> str:
    """A line without code: file names and messages keep their words."""
    return pages.CODE.sub("", text)


def test_pages_are_plain_english() -> None:
    found = [
        f"{line.place}: {match[0]!r}"
        for page in pages.pages()
        for line in pages.lines(page)
        for match in FORBIDDEN.finditer(prose(line.text))
    ]
    assert not found, "\n".join(found)


def test_code_is_left_alone() -> None:
    assert not FORBIDDEN.search(prose("the file `keeper.json`, and ``say `x` ``"))
    assert FORBIDDEN.search(prose("Nobody knows `x`."))
