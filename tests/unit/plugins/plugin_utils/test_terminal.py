from __future__ import annotations

import pytest
from ansible_collections.argus.verl.plugins.plugin_utils import reporting


@pytest.mark.parametrize(
    ("columns", "expected"),
    [(None, 132), ("80", 80), ("1", 1), ("0", 132), ("wide", 132)],
)
def test_the_width_of_the_terminal(columns: str | None, expected: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reporting, "DEFAULT_TABLE_WIDTH", 132)
    monkeypatch.delenv("COLUMNS", raising=False)
    if columns is not None:
        monkeypatch.setenv("COLUMNS", columns)
    assert reporting.table_width() == expected
    # Sentences are wrapped on a terminal only.
    for is_terminal, width in ((True, expected), (False, None)):
        monkeypatch.setattr(reporting, "IS_TERMINAL", is_terminal)
        assert reporting.text_width() == width
