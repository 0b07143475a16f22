# SPDX-License-Identifier: Apache-2.0
"""Text for people: printable characters, tables and wrapped lines, durations and sizes, hints for misspelt names."""

from __future__ import annotations

import difflib
import functools
import itertools
import re
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

# Characters that a terminal would obey or hide: control characters (also 8-bit), characters that change the direction
# of text, join or separate it or have no width, and lone surrogates, which cannot be written.
UNPRINTABLE = (
    "[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\xad\\u061c\\u115f\\u1160\\u180e\\u200b-\\u200f\\u2028-\\u202e\\u2060-\\u206f"
    "\\u3164\\ufe00-\\ufe0f\\ufeff\\uffa0\\ufff9-\\ufffb\\U000e0000-\\U000e01ef\\ud800-\\udfff]"
)
CONTROL = re.compile(UNPRINTABLE)
# The parameters of escape sequences that logs may use: colours, bold and underlined text; not hidden or blinking text.
COLOUR = (
    r"(?:0?[0-479]|2[1-9]|3[0-79]|4[0-79]|9[0-7]|10[0-7]|[34]8;5;[0-9]{1,3}|[34]8;2;[0-9]{1,3};[0-9]{1,3};[0-9]{1,3})?"
)
# An escape sequence with such parameters, any other one, as for a movement of the cursor, or an unprintable character.
SEQUENCE = re.compile(
    rf"(?P<colour>\x1b\[{COLOUR}(?:;{COLOUR}){{0,8}}m)|\x1b\[[0-?]{{0,64}}[ -/]{{0,8}}[@-~]|(?P<control>{UNPRINTABLE})"
)
# Ends all colours.
NO_COLOUR = "\x1b[0m"
# The narrowest column in which wrapped text is still easy to read.
MIN_COLUMN_WIDTH = 24
# The widest line of running text.
SENTENCE_WIDTH = 120
# Commands stay in one piece, so that they can be pasted: a playbook or program with its options, and the engine's.
# Each option matches in one way only, because backtracking over texts of jobs would never end.
OPTION = r"(?: --?\w[\w-]*(?:[ =](?:'[^']*'|[^\s'\-][^\s,;]*))?)"
COMMAND = re.compile(
    rf"(?:ansible-playbook{OPTION}* )?[\w./-]+\.ya?ml{OPTION}+|ansible(?:-playbook|-doc)?{OPTION}* [\w./-]+{OPTION}*"
    rf"|(?:docker|podman) (?:image )?[a-z]+{OPTION}*(?: [\w./:@-]*[\w./:@])?|(?<!\S)-e [^\s,;]+"
)
# Commands are only searched in lines up to this length.
MAX_WRAPPED_CHARS = 4000
# Stands for a blank at which a line is not wrapped.
FIXED_BLANK = "\ue000"
# The label at the beginning of a line, such as "Reason:   ".
LABEL = re.compile(r"[A-Z][\w ]{0,14}: +")


def printable(text: object, lines: bool = True) -> str:
    """Untrusted text as a terminal can show it: control characters become visible, as in ``\\x1b``.

    lines: whether line ends stay line ends.
    """
    shown = CONTROL.sub(lambda match: escape(match[0]), str(text))
    return shown if lines else shown.replace("\n", "\\n")


def printable_line(line: str, colour: bool) -> str:
    """A line of a log as a terminal can show it, with or without its colours, and without movements of the cursor."""

    def shown(match: re.Match[str]) -> str:
        if match["control"]:
            return escape(match["control"])
        return match["colour"] if colour and match["colour"] else ""

    text = SEQUENCE.sub(shown, line).replace("\n", "\\n")
    return f"{text}{NO_COLOUR}" if NO_COLOUR[:1] in text else text


def escape(character: str) -> str:
    return (
        character.encode("ascii", "backslashreplace").decode() if ord(character) > 127 else f"\\x{ord(character):02x}"
    )


def table(
    header: Sequence[str], rows: Iterable[Sequence[Any]], width: int | None = None, cell: int | None = None
) -> str:
    """A table with left-aligned columns, two spaces apart. None becomes "-". Cells are made printable.

    width: the width of a line. The widest columns are wrapped until the table fits, but never within a word.
    cell: the maximum width of a column. Longer cells are wrapped, and line ends in cells stay.
    """
    shown = functools.partial(printable, lines=bool(cell))
    cells = [[shown(name).upper() for name in header]]
    cells += [["-" if value is None else shown(value) for value in row] for row in rows]
    columns = list(zip(*cells, strict=True))
    longest = [max((len(line) for text in column for line in text.splitlines()), default=0) for column in columns]
    limits = [min(size, cell or size, width or size) for size in longest]
    leasts = [least_width(column, limit) for column, limit in zip(columns, limits, strict=True)]
    limits = list(map(max, leasts, limits))
    while width and sum(limits) + 2 * (len(limits) - 1) > width:
        wide = [number for number, least in enumerate(leasts) if limits[number] > least]
        if not wide:
            break
        limits[max(wide, key=limits.__getitem__)] -= 1
    lines: list[Sequence[str]] = []
    for row in cells:
        texts = (
            "\n".join(wrap_line(line, limit) for line in text.splitlines())
            for text, limit in zip(row, limits, strict=True)
        )
        lines += itertools.zip_longest(*(text.splitlines() or [""] for text in texts), fillvalue="")
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    aligned = ("  ".join(value.ljust(width) for value, width in zip(line, widths, strict=True)) for line in lines)
    return "\n".join(line.rstrip() for line in aligned)


def least_width(column: Sequence[str], limit: int) -> int:
    """The width to which a column can be wrapped, as words and commands are not. limit: its present width."""
    words = [len(word) for text in column for word in keep_commands_whole(text).split()]
    return max(*words, min(limit, MIN_COLUMN_WIDTH), 0)


def keep_commands_whole(text: str) -> str:
    """The text with FIXED_BLANK in place of the blanks in commands, so that commands are not wrapped."""
    if len(text) > MAX_WRAPPED_CHARS:
        return text
    return COMMAND.sub(lambda match: match[0].replace(" ", FIXED_BLANK), text)


def wrap_line(line: str, width: int, indent: str = "") -> str:
    """Wrap a line at blanks, but not within paths and commands. indent: of all lines but the first."""
    if len(line) <= width:
        return line
    lines = textwrap.wrap(
        keep_commands_whole(line), width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
    return "\n".join(lines).replace(FIXED_BLANK, " ")


def wrap_sentence(line: str, width: int | None) -> str:
    """Wrap a line of running text, with an indent of two blanks, or as wide as its label, as in ``Reason:   …``.

    A line that begins with a blank comes from a log, and stays as it is. So does a label with nothing but a command.
    """
    if not width or line[:1].isspace() or "\n" in line:
        return line
    label = LABEL.match(line)
    if label and COMMAND.fullmatch(line, label.end()):
        return line
    return wrap_line(line, min(width, SENTENCE_WIDTH), " " * (label.end() if label else 2))


def duration(seconds: float) -> str:
    """``1:05``, or ``2:01:05`` from one hour on."""
    minutes, rest = divmod(max(0, int(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def size_text(size: float) -> str:
    """A size in bytes as text: ``12 MiB``, ``1.5 GiB``, ``2.1 TiB``."""
    for unit in ("bytes", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB" if size < 1024 else f"{size / 1024:.1f} TiB"


def one_line(text: object, limit: int | None = None) -> str:
    """The text in one printable line, with single blanks and without full stops at its end. limit: its length."""
    return printable(" ".join(str(text).split())).rstrip(".")[:limit]


def spelling_hint(name: str, candidates: Iterable[str]) -> str:
    """The hint ``did you mean "x"?`` for a misspelt name; empty if no candidate is similar."""
    # Case is the most common mistake, and difflib would count every letter as different.
    by_lower = {candidate.lower(): candidate for candidate in candidates}
    matches = difflib.get_close_matches(name.lower(), by_lower, n=1)
    return f'did you mean "{printable(by_lower[matches[0]], lines=False)}"?' if matches else ""
