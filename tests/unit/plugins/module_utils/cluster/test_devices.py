from __future__ import annotations

import pytest
from ansible_collections.argus.verl.plugins.module_utils.cluster.devices import DeviceFile, is_openable


@pytest.mark.parametrize(
    ("mode", "uid", "groups", "opens"),
    [
        *((0o666, 61000, [61000], True), (0o660, 61000, [61000], False), (0o660, 61000, [61000, 110], True)),
        *((0o640, 61000, [110], False), (0o664, 61000, [61000], False), (0o662, 61000, [61000], False)),
        # The kernel does not look at the rights of others for the owner and the group.
        *((0o606, 61000, [110], False), (0o066, 104, [61000], False)),
        *((0o600, 104, [61000], True), (0o400, 104, [61000], False), (0o000, 0, [0], True)),
    ],
)
def test_devices_that_a_user_can_open(mode: int, uid: int, groups: list[int], opens: bool) -> None:
    assert is_openable(DeviceFile("/dev/x", mode, 104, 110), uid, groups) is opens
