"""Every regular expression that reads the text of jobs takes a time in proportion to its length."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from patterns import RULES, Texts, expressions

from argus.hooks import redact
from argus.io import output
from argus.launcher import diagnosis
from argus.launcher.diagnosis import classify
from argus.launcher.failure_rules import Rule

MIB = 1 << 20
# A pattern that squares its work takes many seconds for this length.
LONG = MIB // 8


def words(pattern: str) -> list[str]:
    """The literal parts of a pattern."""
    plain = re.sub(r"\(\?P<\w+>|\(\?[:=!>]|\\[nt]", "\n", pattern)
    plain = re.sub(r"\\([.\[\]()*|+'])", lambda match: match[1], plain)
    return [part for part in re.split(r"[\n|]|\\.|\.[*+]\??|[()^$?]|\[[^\]]*\][*+]?|\{[^}]*\}", plain) if part.strip()]


def shapes(pattern: str) -> list[str]:
    """Repetitions of each literal part of a pattern, of all together, and of what its wildcards match."""
    parts = words(pattern)
    fill = [*"a 1.:_([\t\\'\"", "a: ", "1 ", "%25", "\x1b[", "\n", '  File "x", line 1\n', "\tip: x\n\tpid: 1\n"]
    starts = ["", "a: ", "ValueError: ", *parts[:2]]
    return [start + unit for unit in [*parts, " ".join(parts), *fill] for start in starts]


def seconds(work: Callable[[], object]) -> float:
    begin = time.process_time()
    work()
    return time.process_time() - begin


def long_lines(shape: str, length: int, size: int) -> str:
    """Lines of a length that begin and go on with a shape."""
    line = (shape * (length // max(1, len(shape)) + 1))[:length]
    return f"{line}\n" * (size // (length + 1))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.pattern[:40])
def test_rules_on_the_longest_lines(rule: Rule) -> None:
    """Lines of this length remain when longer ones have lost their middle."""
    for shape in shapes(rule.pattern + rule.frame):
        text = long_lines(shape, output.MAX_LINE_CHARS, 2 * output.MAX_LINE_CHARS)
        text = f'  File "x", line 1\n{text}' if rule.frame else text
        assert seconds(lambda text=text: list(diagnosis.rule_matches(rule, text))) < 0.1, shape


@pytest.mark.parametrize(
    "shape", ["XError: port: 1 ", "RpcError ", "(a pid=1 ", "\x1b[0", '  File "x", line 1\n\t\n', "\n"]
)
def test_a_text_of_one_shape(shape: str) -> None:
    for text in (shape * (LONG // len(shape)), long_lines(shape, 32 << 10, LONG)):
        assert seconds(lambda text=text: classify(text, 1)) < 1.5


def test_a_line_for_each_of_many_processes() -> None:
    text = "".join(f"(a pid={number}) x\n" for number in range(60_000))
    assert seconds(lambda: classify(text, 1)) < 5
    assert len(output.output_by_process(text)) == output.MAX_PROCESSES + 1


# Each once, by its place.
ALL = {f"{one.place} {one.pattern.pattern!r:.40}": one for one in {one.pattern: one for one in expressions()}.values()}


@contextmanager
def limit(seconds: float) -> Iterator[None]:
    """A pattern that takes longer is ended."""

    def late(_signum: int, _frame: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def ask(pattern: re.Pattern[Any], text: str) -> None:
    subject = text if isinstance(pattern.pattern, str) else text.encode("latin-1", "replace")
    for _match in pattern.finditer(subject):
        pass
    pattern.fullmatch(subject)


@pytest.mark.parametrize("place", ALL)
def test_no_pattern_has_many_ways_to_read_a_text(place: str) -> None:
    """Every pattern of the collection: in a line of 1000 characters, one that doubles or cubes its work never ends."""
    pattern = ALL[place].pattern
    for text in sorted(Texts().of(pattern, 1000)):
        try:
            with limit(1):
                ask(pattern, text)
        except TimeoutError:
            pytest.fail(f"{pattern.pattern!r} takes for ever for {text[:80]!r}")


# These search a log, or a file of a user.
LOGS = r"^argus\.(archive|evidence|hooks|io|launcher|queue|ray)\.|job_files"
SEARCHING = [place for place, one in ALL.items() if one.searches and re.search(LOGS, place)]


@pytest.mark.parametrize("place", SEARCHING)
def test_what_searches_in_logs_is_linear(place: str) -> None:
    pattern = ALL[place].pattern
    source = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode("latin-1")
    shapes = ["a", "step:1", "a://", "a:", "\x1b[0", "\x1b]", "%25", "\\u", "\\", "MARKER = '", "(a pid=1 "]
    for shape in [*shapes, *words(source)]:
        with limit(2):
            ask(pattern, (shape * (LONG // len(shape)))[:LONG])


@pytest.mark.parametrize("shape", ["hf_AbCdEfG", "\\", "\\\\u00", "%25", "\x1b[", "-", "\r"])
def test_redaction(shape: str) -> None:
    redactor = redact.Redactor(["hf_AbCdEfGhIjKl", "-" * 40, "\\" * 20 + "x"])
    data = (shape * (MIB // len(shape))).encode()
    assert seconds(lambda: redactor.mask_text(data.decode())) < 5
    pieces = [data[start : start + (1 << 16)] for start in range(0, MIB, 1 << 16)]
    assert seconds(lambda: [redactor.feed(piece) for piece in pieces]) < 5
