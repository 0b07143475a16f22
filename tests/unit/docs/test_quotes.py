"""Every message that a page quotes is one that the source can write.

A page quotes a message as bold code (**`…`**), or as code in a table's column "Message". `<name>` and `…` stand for
what is filled in. Output of other programs is quoted in other ways, and is not checked.
"""

from __future__ import annotations

import difflib
import re
from functools import cache

import pytest
from unit.docs import pages, sources

# What is filled in may bring its quotation marks: f"{name!r}".
WILD = re.compile(r"""["']?<[^<>]*>["']?|…""")
# A quote has to have more than a word of its own, or it would be found anywhere.
LEAST = 6


@cache
def messages() -> dict[str, str]:
    return sources.strings(pages.REPO)


def fragments(quote: str) -> list[str]:
    return [sources.plain(part) for part in WILD.split(quote) if part.strip()]


def fits(quote: str, source: str) -> bool:
    """Whether all that a quote says stands in the source, in this order and with the same ends of words."""
    at = 0
    for part in fragments(quote):
        found = source.find(part, at)
        if found < 0:
            return False
        at = found + len(part)
    return True


def is_found(quote: str) -> bool:
    parts = fragments(quote)
    return sum(len(part) for part in parts) >= LEAST and any(fits(quote, source) for source in messages())


def nearest(quote: str) -> str:
    """The source string that has most of the quote's words in common, for whoever corrects the page."""
    words = set(re.findall(r"\w{3,}", WILD.sub(" ", quote)))

    def likeness(source: str) -> tuple[float, float]:
        other = set(re.findall(r"\w{3,}", source))
        common = len(words & other) / max(len(words), 1)
        return common, -abs(len(other) - len(words))

    best = sorted((source for source in messages() if len(source) < 400), key=likeness, reverse=True)[:300]
    chosen = max(best, key=lambda source: difflib.SequenceMatcher(None, quote, source).ratio())
    return f"{chosen.replace(sources.HOLE, '<>')}  ({messages()[chosen]})"


def quoted() -> list[pages.Quote]:
    return [quote for page in pages.pages() for quote in pages.quotes(page)]


def test_every_quoted_message_is_in_the_source() -> None:
    lost = [quote for quote in quoted() if not is_found(quote.text)]
    report = "\n".join(f"{quote.place}\n  quoted:  {quote.text}\n  nearest: {nearest(quote.text)}" for quote in lost)
    assert not lost, f"{len(lost)} quoted messages are not in the source:\n{report}"


def test_troubleshooting_quotes_messages() -> None:
    """The markup is what the test above goes by: were it lost, that test would pass."""
    found = [quote for quote in quoted() if quote.place.startswith("docs/troubleshooting.md")]
    assert len(found) > 20


@pytest.mark.parametrize(
    ("code", "quote", "expected"),
    [
        ('x = f"there are {n} rows in {file}"', "there are <n> rows in <file>", True),
        ('x = f"there are {n} rows in {file}"', "there are … in", True),
        ('x = ("there are " f"{n} " "rows")', "there are <n> rows", True),
        ('x = "there are " + str(n) + " rows"', "there are <n> rows", True),
        ('x = "there are no rows"', "there are few rows", False),
        ('x = f"{n} rows are there"', "there <n> rows are", False),
    ],
)
def test_a_quote_is_held_against_python(code: str, quote: str, expected: bool) -> None:
    assert any(fits(quote, source) for source in sources.of_python(code)) is expected
