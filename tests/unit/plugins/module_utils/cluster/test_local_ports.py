from __future__ import annotations

import pytest
from ansible_collections.argus.verl.plugins.module_utils.cluster.hardware import (
    parse_ephemeral,
    parse_listeners,
    parse_ranges,
)

# Recorded on Linux 6.1: a listener on the loopback, a connection, one in TIME_WAIT; IPv6 writes longer addresses.
TABLE = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:2049 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 51234 1 0000000000000000
   1: 0100007F:2050 0100007F:0A0A 01 00000000:00000000 00:00000000 00000000  1000        0 51235 1 0000000000000000
  12: 0100007F:2051 0100007F:0A0A 06 00000000:00000000 03:00000D4C 00000000     0        0 0 3 0000000000000000
"""
TABLE6 = """\
  sl  local_address                         remote_address                        st tx_queue rx_queue tr tm->when
 104: 00000000000000000000000000000000:FFFF 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000
   1: 0000000000000000FFFF0000020200C0:4E23 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000
"""


def test_listeners() -> None:
    assert parse_listeners(TABLE) == {8265}
    assert parse_listeners(TABLE6) == {65535, 20003}
    assert parse_listeners("") == set()


@pytest.mark.parametrize(
    ("text", "ranges"),
    [("", []), ("8080", [(8080, 8080)]), ("8080,20000-21999\n", [(8080, 8080), (20000, 21999)])],
)
def test_reserved_ports(text: str, ranges: list[tuple[int, int]]) -> None:
    assert parse_ranges(text) == ranges


def test_ephemeral_ports() -> None:
    assert parse_ephemeral("32768\t60999\n") == (32768, 60999)
    assert parse_ephemeral("") is None
