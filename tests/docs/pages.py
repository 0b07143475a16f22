"""The pages that people read, and what they hold: lines, tables, links, anchors, quoted messages."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]

CODE = re.compile(r"(`+)(.+?)\1(?!`)")
BOLD_CODE = re.compile(r"\*\*(`+)(.+?)\1\*\*")
LINK = re.compile(r"\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#{1,6} +(.*?)\s*$")


@dataclass(frozen=True)
class Line:
    """A line of a page that is not inside a code block."""

    page: Path
    number: int
    text: str

    @property
    def place(self) -> str:
        return f"{str(self.page).removeprefix(f'{REPO}/')}:{self.number}"


def pages() -> list[Path]:
    """Every Markdown file of the repository that git knows or would add."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"]
    listed = subprocess.run(command, cwd=REPO, capture_output=True, text=True, check=True).stdout
    return sorted(REPO / name for name in listed.splitlines() if (REPO / name).is_file())


def lines(page: Path) -> Iterator[Line]:
    fence = ""
    for number, text in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1):
        opened = re.match(r"\s*(```+|~~~+)", text)
        if opened and not fence:
            fence = opened[1]
        elif fence:
            fence = "" if text.strip() == fence else fence
        elif not text.startswith("    "):
            yield Line(page, number, text)


def slug(heading: str) -> str:
    """The anchor that GitHub gives to a heading."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def anchors(page: Path) -> set[str]:
    counts: dict[str, int] = {}
    names = set()
    for line in lines(page):
        heading = HEADING.match(line.text)
        if heading:
            name = slug(heading[1])
            count = counts[name] = counts.get(name, -1) + 1
            names.add(f"{name}-{count}" if count else name)
    return names


def links(page: Path) -> Iterator[tuple[Line, str]]:
    for line in lines(page):
        # The text of a link may be code; code may look like a link.
        without_code = CODE.sub(lambda match: "x" * len(match[0]), line.text)
        for match in LINK.finditer(without_code):
            yield line, match[1]


def cells(row: str) -> list[str]:
    """The cells of a row of a table; `\\|` does not end one."""
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", row.strip().strip("|"))]


def quotes(page: Path) -> Iterator[tuple[str, str]]:
    """What a page quotes of our messages, with its place: bold code, and code in a column with the title "Message"."""
    column: int | None = None
    inside = False
    for line in lines(page):
        for match in BOLD_CODE.finditer(line.text):
            yield line.place, match[2].strip()
        row = line.text.startswith("|")
        if row and not inside:
            titles = [cell.lower() for cell in cells(line.text)]
            column = titles.index("message") if "message" in titles else None
        elif row and column is not None:
            for match in CODE.finditer(cells(line.text)[column]):
                yield line.place, match[2].strip().replace("\\|", "|")
        inside = row
