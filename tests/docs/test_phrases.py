"""Phrases that are not plain technical English, and came back before."""

from __future__ import annotations

import re

from docs import pages

FORBIDDEN = re.compile(
    r"""as\ it\ says | \bnobody\b | \bsomebody\b | \bwhoever\b | \bno\ word\ of\b | \b(?:is|are)\ said\b
    | \bsay\ `?-e\b | \bsay\ ` | what\ was\ never\ run | what\ was\ tried | \bmend\b | \bwhat\ is\ there\b
    | \ball\ that\ is\ wrong\b | \bof\ which\ the\b | \bspeaks?\ against\b | \bsigns?\ of\ life\b
    | \btaken\ up\ again\b | \bkeepers?\b | \bways?\ out\b | \bthe\ same\ goes\b | \blook(?:ed|s)\ at\b""",
    re.IGNORECASE | re.VERBOSE,
)


# Files with comments and messages for people. Tests may quote other programs.
SOURCES = ("argus", "plugins", "roles", "playbooks", "tools", "inventories", "molecule", "Makefile")
SUFFIXES = {".py", ".yml", ".yaml", ".sh", ""}


def prose(text: str) -> str:
    """A line without code: file names and messages keep their words."""
    return pages.CODE.sub("", text)


def test_pages_are_plain_english() -> None:
    phrases = [
        f"{line.place}: {match[0]!r}"
        for page in pages.pages()
        for line in pages.lines(page)
        for match in FORBIDDEN.finditer(prose(line.text))
    ]
    assert not phrases, "\n".join(phrases)


def test_sources_are_plain_english() -> None:
    paths = [path for place in SOURCES for path in (pages.REPO / place, *(pages.REPO / place).rglob("*"))]
    phrases = [
        f"{path.relative_to(pages.REPO)}:{number}: {match[0]!r}"
        for path in paths
        if path.is_file() and path.suffix in SUFFIXES
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        for match in FORBIDDEN.finditer(line)
    ]
    assert len(paths) > 100
    assert not phrases, "\n".join(phrases)


def test_no_command_hashes_what_a_job_could_have_replaced() -> None:
    """A file is hashed while it is written."""
    texts = {page: page.read_text(encoding="utf-8") for page in pages.pages()}
    assert [page for page, text in texts.items() if re.search(r"sha256sum +[^ |`\n]*/", text)] == []
    assert any("| sha256sum" in text for text in texts.values())
