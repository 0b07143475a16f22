"""Where a token may be sent without encryption."""

from __future__ import annotations

import pytest

from argus.staging.addresses import is_loopback


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.8.9.1", "::1"])
def test_this_machine(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", [None, "", "localhost.example.com", "127.0.0.1.net", "10.0.0.1", "0x7f.1", "::2"])
def test_another_machine(host: str | None) -> None:
    assert not is_loopback(host)
