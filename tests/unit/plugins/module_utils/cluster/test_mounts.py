from __future__ import annotations

import pytest
from ansible_collections.argus.verl.plugins.module_utils.cluster.paths import mount_of, parse_mountinfo
from samples import recorded


@pytest.mark.parametrize(
    ("path", "mount_point", "fstype", "source", "access"),
    [
        ("/private/jobs/x", "/private", "nfs4", "storage.example.org:/export/private", "rw"),
        ("/private/models/qwen", "/private/models", "nfs4", "storage.example.org:/export/private", "ro"),
        ("/privateer", "/", "ext4", "/dev/vda", "rw"),
        ("/srv/bound root/a", "/srv/bound root", "ext4", "/dev/vda", "rw"),
        ("/scratch", "/scratch", "xfs", "/dev/md0", "ro"),
    ],
)
def test_longest_and_latest_mount_wins(path: str, mount_point: str, fstype: str, source: str, access: str) -> None:
    mount = mount_of(path, parse_mountinfo(recorded("mountinfo.txt")))
    assert mount is not None
    assert (mount.mount_point, mount.fstype, mount.source) == (mount_point, fstype, source)
    assert [option for option in mount.options if option in ("ro", "rw")] == [access]
    # Those of the mount, and of its file system.
    expected = ["ro", "relatime", "vers=4.2", "hard", "addr=10.0.0.2"]
    assert mount_point != "/private/models" or mount.options == expected
