"""Real processes: root gives up its rights, for work in a tree that another user can write to."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.argus.verl.plugins.module_utils.privileges import (
    UNPRIVILEGED,
    User,
    user_of,
    without_root,
)

NOBODY = 65534
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


@pytest.fixture
def shared_root(tmp_path: Path) -> Path:
    for directory in (tmp_path, *tmp_path.parents):
        if directory.stat().st_mode & 0o005 != 0o005:
            directory.chmod(directory.stat().st_mode | 0o055)
    (tmp_path / "shared" / "jobs").mkdir(parents=True)
    return tmp_path / "shared"


def who() -> dict[str, Any]:
    return {"uids": os.getresuid(), "gids": os.getresgid(), "groups": os.getgroups(), "pid": os.getpid()}


def test_a_shared_root_that_root_cannot_look_into_is_not_for_root(
    shared_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NFS with root_squash."""

    def squashed(path: Path) -> os.stat_result:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "lstat", squashed)
    assert user_of(shared_root) == User(UNPRIVILEGED, UNPRIVILEGED)


def set_owner(path: Path, mode: int = 0, owner: int = 0) -> None:
    os.chown(path, owner, owner)
    path.chmod(mode or path.stat().st_mode)


@pytest.mark.parametrize(
    ("root", "jobs", "user"),
    [
        # The owner of the archives, never with the group of root.
        (set_owner, lambda jobs: os.chown(jobs, NOBODY, 0), NOBODY),
        (set_owner, lambda jobs: (jobs.rmdir(), jobs.symlink_to("/root")), UNPRIVILEGED),
        (lambda root: set_owner(root, 0o1777), set_owner, UNPRIVILEGED),
        (set_owner, lambda jobs: set_owner(jobs, 0o1777), UNPRIVILEGED),
        (lambda root: set_owner(root, 0o1777), lambda jobs: set_owner(jobs, owner=NOBODY), NOBODY),
    ],
)
def test_the_user_of_a_shared_root(shared_root: Path, root: Any, jobs: Any, user: int) -> None:
    root(shared_root)
    jobs(shared_root / "jobs")
    (shared_root.parent / "private").symlink_to(shared_root)
    assert user_of(shared_root) == user_of(shared_root.parent / "private") == User(user, user)


def test_root_remains_root_where_nobody_else_can_write(shared_root: Path) -> None:
    assert user_of(shared_root) == User(0, 0)
    assert without_root(shared_root, who)["uids"] == [0] * 3
    assert user_of(shared_root / "missing") == User(0, 0)


def test_a_link_to_a_file_of_root_is_a_failure(shared_root: Path) -> None:
    os.chown(shared_root, NOBODY, NOBODY)
    secret = shared_root / "secret"
    secret.write_text("of root")
    secret.chmod(0o400)
    (shared_root / "lock").symlink_to("secret")

    groups = os.getgroups()
    os.setgroups([7])
    result = without_root(shared_root, who)
    os.setgroups(groups)
    assert (result["uids"], result["gids"], result["groups"]) == ([NOBODY] * 3, [NOBODY] * 3, [])
    # A child that dies.
    assert without_root(shared_root, lambda: os.kill(os.getpid(), 9) or {})["failed"]
    result = without_root(shared_root, lambda: {"content": Path("lock").read_text()})
    assert result["failed"] is True and "PermissionError" in result["msg"]
    # Neither does a link lead out of the shared root, nor can a child become root again.
    (shared_root.parent / "outside").write_text("of everybody")
    for number, target in enumerate((shared_root.parent / "outside", "../outside")):
        (shared_root / str(number)).symlink_to(target)
    result = without_root(shared_root, lambda: {"found": [Path(name).exists() for name in "01"]})
    assert result == {"found": [False, False]}
    assert "PermissionError" in without_root(shared_root, lambda: os.setuid(0) or {})["msg"]


def test_a_shared_root_in_the_home_directory_of_root_is_reached(shared_root: Path) -> None:
    """A checkout is often there, and the shared root of the development cluster is in the checkout."""
    os.chown(shared_root, NOBODY, NOBODY)
    shared_root.parent.chmod(0o700)
    (shared_root / "jobs" / "one").write_text("of a job")

    def look() -> dict[str, Any]:
        Path("written").touch()
        return {"one": Path("jobs/one").read_text()}

    assert without_root(shared_root, look) == {"one": "of a job"}
    assert (shared_root / "written").stat().st_uid == NOBODY
