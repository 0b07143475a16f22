"""Every message that a page quotes is one that the source can write.

A page quotes a message as bold code (**`…`**), or as code in a table's column "Message". `<name>` and `…` stand for
what is filled in. Output of other programs is quoted in other ways, and is not checked.
"""

from __future__ import annotations

import re

from docs import pages, sources

# What is filled in may bring its quotation marks: f"{name!r}".
WILD = re.compile(r"""["']?<[^<>]*>["']?|…""")
# A quote has to have more than a word of its own, or it would be found anywhere.
LEAST = 6


def fragments(quote: str) -> list[str]:
    return [sources.plain(part) for part in WILD.split(quote) if part.strip()]


def fits(quote: str, source: str) -> bool:
    """Whether all that a quote says stands in the source, in this order and with the same ends of words."""
    at = 0
    for part in fragments(quote):
        start = source.find(part, at)
        if start < 0:
            return False
        at = start + len(part)
    return True


def is_found(quote: str) -> bool:
    parts = fragments(quote)
    return sum(len(part) for part in parts) >= LEAST and any(fits(quote, source) for source in sources.strings())


def quoted() -> list[tuple[str, str]]:
    return [quote for page in pages.pages() for quote in pages.quotes(page)]


def test_every_quoted_message_is_in_the_source() -> None:
    lost = [f"{place}: not in the source: {text}" for place, text in quoted() if not is_found(text)]
    assert not lost, "\n".join(lost)


def test_troubleshooting_quotes_messages() -> None:
    """The test above depends on the markup: without it, that test would pass."""
    assert sum(place.startswith("docs/troubleshooting.md") for place, _text in quoted()) > 20
