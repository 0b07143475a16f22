"""Every regular expression that reads the text of jobs takes a time in proportion to its length."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

import pytest
from ansible_collections.argus.verl.plugins.module_utils.launcher import (
    attempts,
    failures,
    launch,
    log,
    masking,
    node,
    output,
    redact,
)
from ansible_collections.argus.verl.plugins.module_utils.launcher.failures import CAUSES, CONSEQUENCES, classify

MIB = 1 << 20
RULES = [*CAUSES, *CONSEQUENCES]


def words(pattern: str) -> list[str]:
    """The literal parts of a pattern."""
    plain = re.sub(r"\(\?P<\w+>|\(\?[:=!>]|\\[nt]", "\n", pattern)
    plain = re.sub(r"\\([.\[\]()*|+'])", lambda match: match[1], plain)
    return [part for part in re.split(r"[\n|]|\\.|\.[*+]\??|[()^$?]|\[[^\]]*\][*+]?|\{[^}]*\}", plain) if part.strip()]


def shapes(pattern: str) -> list[str]:
    """Repetitions of each literal part of a pattern, of all together, and of what its wildcards match."""
    parts = words(pattern)
    together = " ".join(parts)
    fill = ["a", " ", "1", ".", ":", "a: ", "1 ", "\t", "_", "(", "[", "'", '"', "\\", "%25", "\x1b["]
    lines = ["\n", '  File "x", line 1\n', "\tclass_name: x\n\tpid: 1\n", "\tip: x\n", "\tpid: 1\n"]
    starts = ["", "XError: ", "a: ", "ValueError: ", *parts[:2]]
    return [start + unit for unit in [*parts, together, *fill, *lines] for start in starts]


def seconds(work: Callable[[], object]) -> float:
    begin = time.process_time()
    work()
    return time.process_time() - begin


def long_lines(shape: str, length: int) -> str:
    """A MiB of lines of a length that begin and go on with a shape."""
    line = (shape * (length // max(1, len(shape)) + 1))[:length]
    return f"{line}\n" * (MIB // (length + 1))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.pattern[:40])
def test_rules_on_the_longest_lines(rule: failures.Rule) -> None:
    """Lines of this length remain when longer ones have lost their middle."""
    for shape in shapes(rule.pattern + rule.below):
        text = long_lines(shape, output.LINE_LENGTH)[: MIB // 16]
        text = f'  File "x", line 1\n{text}' if rule.below else text
        assert seconds(lambda text=text: list(failures.matches(rule, text))) < 0.5, shape


@pytest.mark.parametrize(
    "shape",
    [
        "x",
        "XError: port: 1 ",
        "a 1 Workers killed due to memory pressure IP: 1 ",
        "Watchdog caught collective operation timeout: Work(OpType=A ran for 1 ",
        "python",
        "RpcError ",
        "a: Read error ",
        "/dev/shm ",
        'File "',
        "(a pid=1 ",
        "(pid=1",
        "[rank0]: ",
        "\r",
        "\x1b[0",
        "data.train_files=",
        '  File "x", line 1\n',
        '  File "x", line 1\n\t\n',
        "\tclass_name: a\n\tpid: 1\n",
        "\tclass_name: a\n",
        "RuntimeError: \n",
        "\n",
        "~",
    ],
)
@pytest.mark.parametrize("end", [1])
def test_a_mebibyte_of_one_shape(shape: str, end: int | None) -> None:
    for text in (shape * (MIB // len(shape)), long_lines(shape, 32 << 10), long_lines(shape, 100)):
        assert seconds(lambda text=text: classify(text, end)) < 5


def test_a_line_for_each_of_many_processes() -> None:
    text = "".join(f"(a pid={number}) x\n" for number in range(60_000))
    assert seconds(lambda: classify(text, 1)) < 5
    assert len(output.output_by_process(text)) == output.MAX_PROCESSES + 1


OTHERS = {
    "the step of a log line": attempts.STEP,
    "the total of steps": log.TOTAL_STEPS,
    "communication": node.COMMUNICATION,
    "the marker": launch.MARKER,
    "a login in a URL": redact.URL_LOGIN,
    "colours": masking.COLOUR,
    "noise": masking.NOISE,
    "percent": masking.PERCENT,
    "backslashes": masking.BACKSLASH,
    "ansi": output.ANSI,
    "origin": output.ORIGIN,
    "frame": output.FRAME,
    "marks": output.MARKS,
    "error": failures.ERROR,
    **{f"setting {name}": pattern for name, pattern in failures.SETTINGS.items()},
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_patterns(name: str) -> None:
    pattern = OTHERS[name]
    source = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode("latin-1")
    # These match at the beginning of lines that were capped, and never search.
    anchored = name in ("origin", "frame", "marks")
    for shape in [
        "step:1",
        "a://",
        "a:",
        "\x1b[0",
        "\x1b]",
        "%25",
        "\\u",
        "\\",
        "MARKER = '",
        "(a pid=1 ",
        *words(source),
    ]:
        text = (shape * (MIB // len(shape)))[: output.LINE_LENGTH if anchored else MIB]
        find = pattern.match if anchored else lambda text, pattern=pattern: sum(1 for _match in pattern.finditer(text))
        given = text if isinstance(pattern.pattern, str) else text.encode("latin-1")
        assert seconds(lambda find=find, given=given: find(given)) < 5, shape  # type: ignore[operator]


@pytest.mark.parametrize(
    "shape", ["hf_AbCdEfG", "h", "\\", "\\\\u00", "%25", "\x1b[", "\x1b]", "-", "\r", "hf_\x1b[0m"]
)
def test_redaction(shape: str) -> None:
    redactor = redact.Redactor(["hf_AbCdEfGhIjKl", "-" * 40, "\\" * 20 + "x"])
    text = shape * (MIB // len(shape))
    assert seconds(lambda: redactor.text(text)) < 5
    data = text.encode()
    pieces = [data[start : start + (1 << 16)] for start in range(0, MIB, 1 << 16)]
    assert seconds(lambda: [redactor.feed(piece) for piece in pieces]) < 5
