from __future__ import annotations

import pytest
from ansible_collections.argus.verl.plugins.plugin_utils import terminal
from ansible_collections.argus.verl.plugins.plugin_utils.terminal import NO_TERMINAL, Terminal, chosen


@pytest.mark.parametrize(
    ("given", "is_terminal", "expected"),
    [
        (None, True, Terminal(132, True)),
        (None, False, Terminal(NO_TERMINAL, False)),
        ("80", True, Terminal(80, True)),
        ("1", False, Terminal(1, False)),
        ("0", True, Terminal(132, True)),
        ("-80", True, Terminal(132, True)),
        ("wide", False, Terminal(NO_TERMINAL, False)),
        ("", True, Terminal(132, True)),
    ],
)
def test_the_width_of_the_terminal(given: str | None, is_terminal: bool, expected: Terminal) -> None:
    assert chosen({} if given is None else {"COLUMNS": given}, 132, is_terminal) == expected


def test_sentences_are_wrapped_on_a_terminal_only() -> None:
    assert (Terminal(80, True).sentence_width, Terminal(80, False).sentence_width) == (80, None)


def test_what_was_measured_last_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "_measured", [])
    monkeypatch.delenv("COLUMNS", raising=False)
    # As Ansible says: 79 without a terminal, otherwise one less than it has.
    assert terminal.terminal(79) == Terminal(NO_TERMINAL, False)
    assert terminal.terminal(80) == Terminal(81, True)
    monkeypatch.setenv("COLUMNS", "90")
    measured = terminal.measure()
    assert measured.columns == 90
    monkeypatch.setenv("COLUMNS", "70")
    assert terminal.terminal(200) is measured
