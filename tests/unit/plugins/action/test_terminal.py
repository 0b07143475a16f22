"""No text of a job can do more to a terminal than colour the lines of its log."""

from __future__ import annotations

import re

import pytest
from ansible_collections.argus.verl.plugins.action import ray_job_info
from ansible_collections.argus.verl.plugins.module_utils.argus.common.findings import Finding, findings_table
from ansible_collections.argus.verl.plugins.module_utils.argus.common.text import (
    one_line,
    printable,
    printable_line,
    spelling_hint,
    table,
)
from ansible_collections.argus.verl.plugins.plugin_utils.job_report import invalid_id_message
from ansible_collections.argus.verl.plugins.plugin_utils.reporting import failure_message, report_lines

SEQUENCES = [
    # Escape sequences: cursor, title, link, clipboard, device control, application command, report, reset, charset.
    *("\x1b", "\x1b[2J\x1b[H", "\x1b[A", "\x1b]0;owned\x07", "\x1b]8;;http://evil\x1b\\x\x1b]8;;\x1b\\"),
    *("\x1b]52;c;ZXZpbA==\x07", "\x1bP+q544e\x1b\\", "\x1b_evil\x1b\\", "\x1b^evil\x1b\\", "\x1b[6n\x1b[c", "\x1bc"),
    *("\x0e\x1b(0", "\x1b\x1b[A[2J", "\x1b[8mhidden", "\x1b[1;5m", "\x1b[31m", "\x1b[31"),
    # Control characters, also of C1.
    *("\x00", "\x05", "\x07", "\x08\x08\x08ok", "evil\rok", "\x0b\x0c", "\x7f"),
    *("\x9b2J", "\x9d0;owned\x9c", "\x90x\x9c", "\x85"),
    # What turns or hides text, and half a character.
    *("\u202egnp.exe\u202c", "\u202a\u202b\u202d", "\u2066\u2067\u2068\u2069", "\u200e\u200f\u061c", "\u2028\u2029"),
    *("a\u200db\u200cc\u200bd\u2060e", "\ufeff", "\xad", "\U000e0041\U000e007f", "\ufe0f\U000e0100", "\ud800"),
]
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
BAD = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff"
    r"\U000e0000-\U000e01ef\ud800-\udfff]"
)


@pytest.mark.parametrize("sequence", SEQUENCES, ids=ascii)
def test_text_is_data(sequence: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What shows text of jobs is tested in a run of ansible-playbook, with one text."""
    text = f"<{sequence}>"
    wrapped = table([text], [[f"{text} {text}"]], width=9)
    shown = [printable(text), printable(text, lines=False), one_line(text), wrapped, spelling_hint("xx", [f"x{text}"])]
    shown += [findings_table([Finding(text, text, text)]), invalid_id_message(text), failure_message([], text)]
    shown += report_lines(text, [text], [[text]], [Finding(text, text, text)], [text])
    assert not BAD.search("\n".join(shown))
    lines: list[str] = []
    monkeypatch.setattr(ray_job_info.display, "display", lines.append)
    for colour in (True, False):
        monkeypatch.setattr(ray_job_info, "ANSIBLE_COLOR", colour)
        ray_job_info.show([text, "next"])
        line = lines.pop()
        assert line.endswith("\nnext")
        assert not BAD.search(COLOUR.sub("", line) if colour else line)
        assert "\x1b" not in line or line == "<\x1b[31m>\x1b[0m\nnext"


def test_colours_stay_and_end_with_the_line() -> None:
    for colour in ("31", "1;31", "", "38;5;208"):
        assert printable_line(f"\x1b[{colour}mx", True) == f"\x1b[{colour}mx\x1b[0m"
        assert printable_line(f"\x1b[{colour}mx", False) == "x"
    assert printable("größe 日本 😀 100% ✓\t\n\x9b") == "größe 日本 😀 100% ✓\t\n\\x9b"
