from __future__ import annotations

from argus.checks.common import Configuration

# --- Configuration ----------------------------------------------------------------------------------------------------


def test_values_of_a_configuration() -> None:
    config = Configuration({"a": {"b": {"c": 1, "d": False}, "t": "text"}, "e": None, "f": "???", "g": "${a.t}"})
    assert [config.get(key) for key in ("a.b.c", "a.b.d", "a.t")] == [1, False, "text"]
    for key in ("e", "f", "g", "h", "a.x", "a.t.x", "a.b.c.x"):
        assert config.get(key) is None, key
        assert config.get(key, 5) == 5, key


def test_numbers_of_a_configuration() -> None:
    config = Configuration({"a": 3, "b": True, "c": "4", "d": 0.5, "e": 0})
    assert [config.number(key, 7) for key in "abcdef"] == [3, 7, 7, 7, 0, 7]
    assert config.number("f") == 0
