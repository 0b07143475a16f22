"""No text of a job can do more to a terminal than colour the lines of its log."""

from __future__ import annotations

import re

import pytest
from ansible_collections.argus.verl.plugins.action import ray_job_info
from ansible_collections.argus.verl.plugins.module_utils.argus.common.findings import Finding, findings_table
from ansible_collections.argus.verl.plugins.module_utils.argus.common.text import (
    nearest,
    one_line,
    printable,
    printable_line,
    table,
)
from ansible_collections.argus.verl.plugins.plugin_utils.job_report import (
    unknown_id,
)
from ansible_collections.argus.verl.plugins.plugin_utils.reporting import failure, report_lines

SEQUENCES = {
    "escape": "\x1b",
    "clear": "\x1b[2J\x1b[H",
    "cursor up": "\x1b[A",
    "title": "\x1b]0;owned\x07",
    "link": "\x1b]8;;http://evil\x1b\\x\x1b]8;;\x1b\\",
    "clipboard": "\x1b]52;c;ZXZpbA==\x07",
    "device control": "\x1bP+q544e\x1b\\",
    "application command": "\x1b_evil\x1b\\",
    "private message": "\x1b^evil\x1b\\",
    "answerback": "\x05",
    "report": "\x1b[6n\x1b[c",
    "reset": "\x1bc",
    "charset": "\x0e\x1b(0",
    "null": "\x00",
    "bell": "\x07",
    "backspace": "\x08\x08\x08ok",
    "carriage return": "evil\rok",
    "vertical tab": "\x0b\x0c",
    "delete": "\x7f",
    "C1 CSI": "\x9b2J",
    "C1 OSC": "\x9d0;owned\x9c",
    "C1 DCS": "\x90x\x9c",
    "next line": "\x85",
    "bidi override": "\u202egnp.exe\u202c",
    "bidi embedding": "\u202a\u202b\u202d",
    "bidi isolate": "\u2066\u2067\u2068\u2069",
    "marks": "\u200e\u200f\u061c",
    "line separators": "\u2028\u2029",
    "joiners": "a\u200db\u200cc\u200bd\u2060e",
    "byte order mark": "\ufeff",
    "soft hyphen": "\xad",
    "tags": "\U000e0041\U000e007f",
    "variation selectors": "\ufe0f\U000e0100",
    "half a character": "\ud800",
    "nested": "\x1b\x1b[A[2J",
    "hidden": "\x1b[8mhidden",
    "blinking": "\x1b[1;5m",
    "colour": "\x1b[31m",
    "unfinished": "\x1b[31",
}
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
BAD = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff"
    r"\U000e0000-\U000e01ef\ud800-\udfff]"
)


@pytest.mark.parametrize("name", SEQUENCES)
def test_text_is_data(name: str) -> None:
    """What shows text of jobs is tested in a run of ansible-playbook, with one text."""
    text = f"<{SEQUENCES[name]}>"
    wrapped = table([text], [[f"{text} {text}"]], width=9)
    shown = [printable(text), printable(text, lines=False), one_line(text), wrapped, nearest("xx", [f"x{text}"])]
    shown += [findings_table([Finding(text, text, text)]), unknown_id(text), failure([], text)]
    shown += report_lines(text, [text], [[text]], [Finding(text, text, text)], [text])
    assert not BAD.search("\n".join(shown))


@pytest.mark.parametrize("colour", [True, False])
def test_lines_of_a_log_have_colours_at_most(colour: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    monkeypatch.setattr(ray_job_info.display, "display", lines.append)
    monkeypatch.setattr(ray_job_info, "ANSIBLE_COLOR", colour)
    for sequence in SEQUENCES.values():
        ray_job_info.show([f"<{sequence}>", "next"])
        shown = lines.pop()
        assert shown.endswith("\nnext")
        assert not BAD.search(COLOUR.sub("", shown) if colour else shown), repr(sequence)
        assert "\x1b[8m" not in shown
        if "\x1b" in shown:
            assert shown == "<\x1b[31m>\x1b[0m\nnext"


def test_control_characters_become_visible() -> None:
    assert printable("a\x1b[2J\x9b\u202e\U000e0041\ud800\tb\nc") == "a\\x1b[2J\\x9b\\u202e\\U000e0041\\ud800\tb\nc"
    assert printable("a\nb", lines=False) == "a\\nb"
    assert printable("größe 日本 😀 100% ✓") == "größe 日本 😀 100% ✓"


@pytest.mark.parametrize(
    "sequence", ["31", "1;31", "0", "", "38;5;208", "48;2;1;2;3", "01;32", "97", "4", "0;36", "39;49"]
)
def test_colours_stay_and_end_with_the_line(sequence: str) -> None:
    assert printable_line(f"\x1b[{sequence}mx", True) == f"\x1b[{sequence}mx\x1b[0m"
    assert printable_line(f"\x1b[{sequence}mx", False) == "x"
    assert printable_line("\x1b[A\rx", True) == "\\x0dx"
