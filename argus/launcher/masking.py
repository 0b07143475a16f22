# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Masks secrets in texts and streams, whichever way a program has escaped or encoded them.

Texts and secrets are brought to one canonical form: escapes are decoded, backslashes and terminal sequences removed.
A secret is then a plain substring, and so is its beginning at the end of a stream.
"""

from __future__ import annotations

import base64
import bisect
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

MASK = "[secret]"
# Shorter values occur by chance in any text.
SHORTEST = 4
# From this length on, the beginning of a secret that was cut off is masked as well.
CUT = 8
# A value may be written with several bytes for each of its own: `%0A`, `\\u00f6`, colours.
EXPANSION = 16

# What is decoded in turn, and how the end of a text may cut it off. First, what a terminal does not show.
NOISE = re.compile(
    rb"\x1b(?:\[[0-?]{0,64}[ -/]{0,8}[@-~]|\][^\x07\x1b]{0,256}(?:\x07|\x1b\\)|[@-Z\\^_])|[\r\x00\x08\x7f]"
)
# The most frequent of it, which is found faster alone.
COLOUR = re.compile(rb"\x1b\[[0-9;]*m")
CUT_NOISE = re.compile(rb"\x1b(?:\[[0-?]{0,64}[ -/]{0,8}|\][^\x07\x1b]{0,256}\x1b?)?\Z")
# Escapes of URLs.
PERCENT = re.compile(rb"%(?:25)*[0-9a-fA-F]{2}")
CUT_PERCENT = re.compile(rb"%(?:25)*[0-9a-fA-F]?\Z")
# Escapes of JSON and Python, whose backslashes may be doubled many times.
BACKSLASH = re.compile(rb"(?:\\+u[0-9a-fA-F]{4})+|\\+U[0-9a-fA-F]{8}|\\+x[0-9a-fA-F]{2}|\\+[nrtbfav]?")
CUT_BACKSLASH = re.compile(
    rb"(?:\\+u[dD][89abAB][0-9a-fA-F]{2})?\\+(?:u[0-9a-fA-F]{0,4}|U[0-9a-fA-F]{0,7}|x[0-9a-fA-F]?)?\Z"
)
STEPS = ((NOISE, CUT_NOISE), (PERCENT, CUT_PERCENT), (BACKSLASH, CUT_BACKSLASH))
CUT_BYTES = 320
ESCAPED = {b"n": b"\n", b"t": b"\t", b"f": b"\f", b"a": b"\a", b"v": b"\v"}
# A blank in the query of a URL.
PLUS = bytes.maketrans(b"+", b" ")
# Characters that no encoding changes.
SAFE = re.compile(rb"[A-Za-z0-9_.~-]+")
ESCAPE = re.compile(b"|".join(pattern.pattern.replace(b"(?:25)*", b"") for pattern, _cut in STEPS))
Span = tuple[int, int]


def decoded(token: bytes) -> bytes:
    """What an escape stands for."""
    if token[:1] == b"%":
        return bytes([int(token[-2:], 16)]).replace(b"\r", b"")
    if token[:1] != b"\\":
        return b""
    rest = token.lstrip(b"\\")
    if rest[:1] == b"x":
        return bytes([int(rest[1:], 16)]).replace(b"\r", b"")
    if rest[:1] == b"U":
        code = int(rest[1:], 16)
        return chr(code).encode(errors="surrogatepass") if code <= 0x10FFFF else b""
    if rest[:1] == b"u":
        units = b"".join(int(unit[:4], 16).to_bytes(2, "big") for unit in token.split(b"u")[1:])
        return units.decode("utf-16-be", "surrogatepass").encode(errors="surrogatepass")
    return ESCAPED.get(rest, b"")


class Step:
    """A text after one step of decoding, and where each of its bytes comes from."""

    def __init__(self, data: bytes, pattern: re.Pattern[bytes]) -> None:
        pieces: list[bytes] = []
        # Where each piece begins after the step; where it begins and ends before it; whether it is a token.
        self.starts: list[int] = []
        self.origins: list[tuple[int, int, bool]] = []
        position = size = 0
        tokens = [(match.start(), match.end(), decoded(match[0])) for match in pattern.finditer(data)]
        for start, end, token in [*tokens, (len(data), len(data), b"")]:
            for piece, origin in ((data[position:start], (position, start, False)), (token, (start, end, True))):
                if piece:
                    pieces.append(piece)
                    self.starts.append(size)
                    self.origins.append(origin)
                    size += len(piece)
            position = end
        self.text = b"".join(pieces)

    def origin(self, position: int) -> Span:
        """The bytes before the step from which one byte after it comes."""
        index = bisect.bisect_right(self.starts, position) - 1
        start, end, token = self.origins[index]
        if token:
            return start, end
        start += position - self.starts[index]
        return start, start + 1


class Canonical:
    """A text in its canonical form.

    open_end: the text goes on; an escape that its end cuts off is left out. `end` is where that begins.
    """

    def __init__(self, data: bytes, open_end: bool = False) -> None:
        self.steps: list[Step] = []
        self.end = len(data)
        for pattern, cut in STEPS:
            partial = cut.search(data, max(0, len(data) - CUT_BYTES)) if open_end else None
            if partial:
                self.end = self.origin(partial.start())[0]
                data = data[: partial.start()]
            if pattern.search(data):
                self.steps.append(Step(data, pattern))
                data = self.steps[-1].text
        self.text = data.translate(PLUS)

    def origin(self, position: int) -> Span:
        """The bytes of the text from which one byte of the canonical form comes."""
        start, end = position, position + 1
        for step in reversed(self.steps):
            start, end = step.origin(start)[0], step.origin(end - 1)[1]
        return start, end

    def span(self, start: int, end: int) -> Span:
        """The part of the text from which a part of the canonical form comes."""
        return self.origin(start)[0], self.origin(end - 1)[1]


@dataclass(frozen=True)
class Form:
    """One way in which a secret may appear.

    text: its canonical form. anchor: a part that every way of writing it contains; empty if there is none. raw: the
    same as it is written without any escapes.
    """

    text: bytes
    anchor: bytes
    raw: bytes


def base64_forms(value: bytes) -> Iterator[bytes]:
    """The parts of base64 texts that are the same whatever surrounds the value: `user:password`, for example."""
    for before in range(3):
        first, last = (0, 2, 3)[before], (before + len(value)) * 8 // 6
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            encoded = encode(bytes(before) + value)[first:last]
            if len(encoded) >= CUT:
                yield encoded


def byte_forms(value: str) -> Iterator[bytes]:
    """A value as programs write it."""
    encoded = value.encode(errors="surrogatepass")
    yield encoded
    if not value.isascii():
        # ascii() writes the first 256 characters as if they were bytes.
        yield b"".join(bytes([ord(char)]) if ord(char) < 256 else char.encode(errors="surrogatepass") for char in value)
    if len(encoded) >= CUT:
        yield from base64_forms(encoded)


def forms(values: Iterable[str]) -> list[Form]:
    """All forms of all values, the longest first. A value of several lines has a form for each, as logs show it."""
    found: dict[bytes, Form] = {}
    for value in values:
        for raw in byte_forms(value) if len(value) >= SHORTEST else ():
            runs = [run for part in ESCAPE.split(raw) for run in SAFE.findall(part) if len(run) >= SHORTEST]
            runs.sort(key=len, reverse=True)
            whole = Canonical(raw).text.strip()
            lines = [line.strip() for line in whole.splitlines()]
            # The short ones are found only in the whole.
            lines += [whole] if any(len(line) < SHORTEST for line in lines) else []
            for text in lines:
                if len(text) >= SHORTEST:
                    anchor = next((run for run in runs if run in text), b"")
                    found.setdefault(text, Form(text, anchor, raw.strip() if text == whole else text))
    return sorted(found.values(), key=lambda form: len(form.text), reverse=True)


def occurrences(part: bytes, text: bytes) -> Iterator[Span]:
    """Where a part occurs in a text; together they cover all its occurrences."""
    start = text.find(part)
    while start >= 0:
        yield start, start + len(part)
        # Of those that overlap with this one, only the last: together they cover the others.
        last = text.rfind(part, start + 1, start + 2 * len(part) - 1)
        start = last if last > start else text.find(part, start + len(part))


def merged(spans: Iterable[Span]) -> list[Span]:
    """Spans in their order; those that overlap become one."""
    found: list[Span] = []
    for start, end in sorted(spans):
        if found and start < found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((start, end))
    return found


def masked(data: bytes, spans: Iterable[Span], start: int, end: int) -> bytes:
    """The part of the data between two positions, with a mask in place of each span."""
    pieces = []
    for first, last in spans:
        if last > start and first < end:
            pieces += [data[start:first], MASK.encode()]
            start = last
    return b"".join([*pieces, data[start:end]])


@dataclass(frozen=True)
class Held:
    """The end of a stream that may be the beginning of a secret. The first `written` bytes were written already."""

    data: bytes = b""
    written: int = 0
    # How many bytes of the secret there are, and whether there is a complete one.
    known: int = 0
    complete: bool = False


class Redactor:
    """Masks secrets in a text, or in a stream that arrives in pieces."""

    def __init__(self, values: Iterable[str]) -> None:
        self.forms = forms(values)
        self.anchors = sorted({form.anchor for form in self.forms}, key=len, reverse=True)
        self.window = EXPANSION * max((len(form.text) for form in self.forms), default=0) + CUT_BYTES
        self.held = Held()

    def text(self, text: str) -> str:
        """The text without its secrets, also without a beginning or an end of one where the text was cut off."""
        if not self.forms:
            return text
        # A stream may escape surrogates when it writes; they must not fail here.
        data = text.encode(errors="surrogatepass")
        spans = merged([*self._spans(data), *self._cut_spans(data)])
        shown = masked(data, spans, 0, len(data)) if spans else data
        try:
            return shown.decode(errors="surrogatepass")
        except UnicodeDecodeError:
            return shown.decode(errors="replace")

    def feed(self, data: bytes) -> bytes:
        """The part of a stream that can be written now; the beginning of a secret at its end is held back."""
        if not self.forms:
            return data
        written, data = self.held.written, self.held.data + data
        spans = self._spans(data)
        start, known = self._beginning(data)
        over = next((span for span in spans if span[0] < start < span[1]), None)
        if over:
            # A secret that overlaps with the end of another one.
            start = over[0]
        if len(data) - start > 2 * self.window:
            # Only repetitions of a secret's beginning are so long.
            self.held = Held()
            return masked(data, merged([*spans, (start, len(data))]), written, len(data))
        self.held = Held(data[start:], max(0, written - start), known, over is not None)
        return masked(data, spans, written, start) if start > written else b""

    def holds(self) -> bool:
        """Whether there is anything that release could return."""
        return bool(self.held.complete or (self.held.known < CUT and self.held.written < len(self.held.data)))

    def release(self) -> bytes:
        """What is held back, if it is too short to tell anything about a secret. The stream goes on."""
        held = self.held
        if not self.holds():
            return b""
        if held.complete:
            return self.rest()
        self.held = Held(held.data, len(held.data), held.known)
        return held.data[held.written :]

    def rest(self) -> bytes:
        """What is held back at the end of the stream; a secret that was cut off is masked."""
        held, self.held = self.held, Held()
        spans = self._spans(held.data)
        if held.known >= CUT:
            spans = merged([*spans, (self._beginning(held.data)[0], len(held.data))])
        return masked(held.data, spans, held.written, len(held.data))

    def _spans(self, data: bytes) -> list[Span]:
        """Where the data has secrets."""
        plain = data
        if b"\x1b" in data or b"\r" in data or b"\b" in data or b"\0" in data or b"\x7f" in data:
            plain = NOISE.sub(b"", COLOUR.sub(b"", data))
        found = {anchor for anchor in self.anchors if anchor in plain or (plain is not data and anchor in data)}
        if not found:
            return []
        canonical = Canonical(data)
        spans = []
        for form in self.forms:
            if form.anchor in found:
                spans += [canonical.span(*each) for each in occurrences(form.text, canonical.text)]
                # What precedes it may read as an escape together with its first character.
                spans += occurrences(form.raw, data) if canonical.text != data else ()
        return merged(spans)

    def _beginning(self, data: bytes) -> tuple[int, int]:
        """Where at the end of the data a secret may begin, and how many bytes of it there are."""
        # Lines are masked one by one.
        offset = max(0, len(data) - self.window, data.rfind(b"\n") + 1)
        window = data[offset:]
        canonical = Canonical(window, open_end=True)
        text = canonical.text
        found = [(canonical.end, 0)]
        starts = [start for form in self.forms for start in beginnings(form.text, text)]
        if starts:
            found.append((canonical.origin(min(starts))[0], len(text) - min(starts)))
        if text != window:
            starts = [start for form in self.forms for start in beginnings(form.raw, window)]
            found += [(start, len(window) - start) for start in starts]
        return offset + min(found)[0], max(known for _start, known in found)

    def _cut_spans(self, data: bytes) -> list[Span]:
        """The end of a secret at the beginning of the data, and the beginning of one at its end."""
        spans = []
        start, known = self._beginning(data)
        if known >= CUT:
            spans.append((start, len(data)))
        head = Canonical(data[: self.window])
        ends = [end for form in self.forms for end in endings(form.text, head.text)]
        if ends:
            spans.append((0, head.span(0, max(ends))[1]))
        return spans


def beginnings(form: bytes, text: bytes) -> Iterator[int]:
    """Where the text ends with the beginning of a form, the earliest of the long ones, and the short ones."""
    head = form[:SHORTEST]
    start = text.find(head, max(0, len(text) - len(form) + 1))
    while start >= 0:
        if form.startswith(text[start:]):
            yield start
            return
        start = text.find(head, start + 1)
    for length in range(min(SHORTEST - 1, len(text)), 0, -1):
        if head.startswith(text[-length:]):
            yield len(text) - length
            return


def endings(form: bytes, text: bytes) -> Iterator[int]:
    """How long the end of a form is with which the text begins, if it is long enough."""
    head = text[:CUT]
    start = form.find(head, 1) if len(head) == CUT else -1
    while start >= 0:
        if text.startswith(form[start:]):
            yield len(form) - start
            return
        start = form.find(head, start + 1)
