# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Masks secrets in texts and streams, in the forms in which programs write values: JSON, repr, URLs, base64."""

from __future__ import annotations

import base64
import bisect
import json
import re
import urllib.parse
from collections.abc import Iterable, Iterator, Sequence

MASK = "[secret]"
# Shorter values occur by chance in any text.
SHORTEST = 4
# From this length on, a part of a secret that was cut off is masked as well.
CUT = 8
Span = tuple[int, int]


def base64_forms(value: bytes) -> Iterator[bytes]:
    """The parts of base64 texts that are the same whatever surrounds the value: `user:password`, for example."""
    for before in range(3):
        first, last = (0, 2, 3)[before], (before + len(value)) * 8 // 6
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            yield encode(bytes(before) + value)[first:last]


def forms_of(value: str) -> Iterator[bytes]:
    """A value in all its forms. A value of several lines has forms for each line as well, as logs show it."""
    whole = value.strip()
    # JSON with a key of several lines has escapes for their ends.
    lines = [line.strip() for line in whole.replace("\\n", "\n").splitlines()]
    for text in {whole, *lines}:
        shown = {
            text,
            *(json.dumps(text, ensure_ascii=is_ascii)[1:-1] for is_ascii in (True, False)),
            *(repr(text)[1:-1], ascii(text)[1:-1], repr(text.encode(errors="surrogatepass"))[2:-1]),
            *(quote(text, errors="replace") for quote in (urllib.parse.quote, urllib.parse.quote_plus)),
            urllib.parse.quote(text, safe="", errors="replace"),
        }
        # A stream would hold back the lines of the whole until the last one. Short lines are found only in the whole.
        if "\n" in text and min(map(len, lines)) >= SHORTEST:
            shown.remove(text)
        yield from (form.encode(errors="surrogatepass") for form in shown if len(form) >= SHORTEST)
    for text in dict.fromkeys((value, whole)):
        yield from (form for form in base64_forms(text.encode(errors="surrogatepass")) if len(form) >= CUT)


def begins_one(forms: Sequence[bytes], text: bytes) -> bool:
    """Whether one of these sorted forms begins with a text and goes on."""
    place = bisect.bisect_right(forms, text)
    return place < len(forms) and forms[place].startswith(text)


def masked(data: bytes, spans: Iterable[Span], start: int, end: int) -> bytes:
    """The part of the data between two positions, with a mask in place of each span."""
    pieces = []
    for first, last in spans:
        pieces += [data[start:first], MASK.encode()]
        start = max(start, last)
    return b"".join([*pieces, data[start:end]])


class Redactor:
    """Masks secrets in a text, or in a stream that arrives in pieces: from the left, the longest at each place."""

    def __init__(self, values: Iterable[str]) -> None:
        self.forms = sorted({form for value in values if len(value) >= SHORTEST for form in forms_of(value)})
        self.backwards = sorted(form[::-1] for form in self.forms)
        self.by_length = sorted(self.forms, key=len, reverse=True)
        self.longest = max(map(len, self.forms), default=0)
        self.first_bytes = {form[0] for form in self.forms}
        # The end of the stream that may be the beginning of a secret, and how many bytes of it were written already.
        self.held = b""
        self.written = 0

    def text(self, text: str) -> str:
        """The text without its secrets, also without a beginning or an end of one where the text was cut off."""
        # A stream may escape surrogates when it writes; they must not fail here.
        return self.masked(text.encode(errors="surrogatepass")).decode(errors="surrogatepass")

    def masked(self, data: bytes) -> bytes:
        """The same of bytes."""
        if not self.forms:
            return data
        start = self._end_of_a_secret(data)
        spans = [(0, start)] * bool(start) + self._all_secrets(data, start)
        return masked(data, spans, 0, len(data))

    def feed(self, data: bytes) -> bytes:
        """The part of a stream that can be written now; the beginning of a secret at its end is held back."""
        if not self.forms:
            return data
        data, written = self.held + data, self.written
        spans, end = self._secrets(data, 0)
        self.held, self.written = data[end:], max(0, written - end)
        return masked(data, spans, written, end)

    def holds(self) -> bool:
        """Whether there is anything that release could return."""
        return self.written < len(self.held) < CUT and not self._matches(self.held)

    def release(self) -> bytes:
        """What is held back, if it is too short to tell anything about a secret. The stream goes on."""
        start = self.written
        if self.holds():
            self.written = len(self.held)
        return self.held[start : self.written]

    def rest(self) -> bytes:
        """What is held back at the end of the stream; a secret that was cut off is masked."""
        data, written, self.held, self.written = self.held, self.written, b"", 0
        return masked(data, self._all_secrets(data, 0), written, len(data))

    def _all_secrets(self, data: bytes, start: int) -> list[Span]:
        """Where data that does not go on has secrets, from a position on; the last one may have been cut off."""
        spans, end = self._secrets(data, start)
        cut_off = [(end, len(data))] if len(data) - end >= CUT else self._matches(data, end)
        return [*spans, *cut_off]

    def _secrets(self, data: bytes, start: int) -> tuple[list[Span], int]:
        """Where the data has secrets, from a position on, and where one may begin that goes on after the data."""
        spans, open_at = [], self._beginning(data, start)
        for first, last in self._matches(data, start):
            if first >= open_at:
                break
            spans.append((first, last))
            if open_at < last:
                open_at = self._beginning(data, last)
        return spans, open_at

    def _matches(self, data: bytes, start: int = 0) -> list[Span]:
        # Usually there are none, which this finds faster than an expression with all forms.
        present = [form for form in self.by_length if form in data]
        if not present:
            return []
        return [match.span() for match in re.compile(b"|".join(map(re.escape, present))).finditer(data, start)]

    def _beginning(self, data: bytes, start: int) -> int:
        """Where a secret may begin whose end the data does not have; the end of the data if nowhere."""
        for place in range(max(start, len(data) - self.longest + 1), len(data)):
            if data[place] in self.first_bytes and begins_one(self.forms, data[place:]):
                return place
        return len(data)

    def _end_of_a_secret(self, data: bytes) -> int:
        """How long the end of a secret is with which the data begins, if it is long enough to tell anything."""
        lengths = range(min(self.longest - 1, len(data)), CUT - 1, -1)
        return next((length for length in lengths if begins_one(self.backwards, data[:length][::-1])), 0)
