"""Real processes: root gives up its rights, for work in a tree that another user can write to."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.argus.verl.plugins.module_utils import privileges
from ansible_collections.argus.verl.plugins.module_utils.privileges import (
    UNPRIVILEGED,
    User,
    as_user,
    closed_above,
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


def test_the_owner_of_the_shared_root_does_the_work(shared_root: Path) -> None:
    os.chown(shared_root, NOBODY, NOBODY)
    result = without_root(shared_root, who)
    assert result["uids"] == [NOBODY] * 3
    assert result["gids"] == [NOBODY] * 3
    assert result["groups"] == []
    assert result["pid"] != os.getpid()


def test_in_a_shared_root_of_root_the_owner_of_the_archives_does_the_work(shared_root: Path) -> None:
    os.chown(shared_root / "jobs", NOBODY, 0)
    assert user_of(shared_root) == User(NOBODY, NOBODY)  # never with the group of root


def test_a_shared_root_that_root_cannot_look_into_is_not_for_root(
    shared_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NFS with root_squash."""

    def squashed(path: Path) -> os.stat_result:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "lstat", squashed)
    assert user_of(shared_root) == User(UNPRIVILEGED, UNPRIVILEGED)


def test_a_link_instead_of_the_archives_is_not_followed(shared_root: Path) -> None:
    (shared_root / "jobs").rmdir()
    (shared_root / "jobs").symlink_to("/root")
    assert user_of(shared_root) == User(UNPRIVILEGED, UNPRIVILEGED)


@pytest.mark.parametrize("name", [".", "jobs"])
def test_what_others_can_write_to_is_not_for_root(shared_root: Path, name: str) -> None:
    (shared_root / name).chmod(0o1777)
    assert user_of(shared_root) == User(UNPRIVILEGED, UNPRIVILEGED)


def test_root_remains_root_where_nobody_else_can_write(shared_root: Path) -> None:
    assert user_of(shared_root) == User(0, 0)
    assert without_root(shared_root, who)["pid"] == os.getpid()
    assert user_of(shared_root / "missing") == User(0, 0)


def test_a_link_to_a_file_of_root_is_a_failure(shared_root: Path) -> None:
    os.chown(shared_root, NOBODY, NOBODY)
    secret = shared_root.parent / "secret"
    secret.write_text("of root")
    secret.chmod(0o400)
    (shared_root / "lock").symlink_to(secret)

    def attack() -> dict[str, Any]:
        return {"content": (shared_root / "lock").read_text()}

    result = without_root(shared_root, attack)
    assert result["failed"] is True
    assert "PermissionError" in result["msg"]
    assert "line " in result["msg"]


def test_a_child_that_dies_is_a_failure() -> None:
    assert "ended without a result" in as_user(User(NOBODY, NOBODY), lambda: os.kill(os.getpid(), 9) or {})["msg"]


def test_a_child_cannot_become_root_again() -> None:
    result = as_user(User(NOBODY, NOBODY), lambda: os.setuid(0) or {})
    assert "PermissionError" in result["msg"]


def test_a_shared_root_that_all_can_write_to_with_archives_of_the_nodes_user(shared_root: Path) -> None:
    shared_root.chmod(0o1777)
    os.chown(shared_root / "jobs", NOBODY, NOBODY)
    assert user_of(shared_root) == User(NOBODY, NOBODY)


def test_a_shared_root_in_the_home_directory_of_root_is_reached(shared_root: Path) -> None:
    """A checkout there is usual, with the shared root of the development cluster in it."""
    os.chown(shared_root, NOBODY, NOBODY)
    closed = shared_root.parent
    closed.chmod(0o700)
    (closed / "secret").write_text("of root")
    (shared_root / "jobs" / "one").write_text("of a job")

    def look() -> dict[str, Any]:
        (shared_root / "written").touch()
        return {"above": [path.name for path in closed.iterdir()], "one": (shared_root / "jobs" / "one").read_text()}

    assert closed_above(shared_root, User(NOBODY, NOBODY)) == closed
    assert without_root(shared_root, look) == {"above": ["shared"], "one": "of a job"}
    # Only that process saw it so.
    assert sorted(path.name for path in closed.iterdir()) == ["secret", "shared"]
    assert (shared_root / "written").stat().st_uid == NOBODY


@pytest.mark.parametrize(
    ("mode", "owner", "group", "closed"),
    [
        (0o700, 0, 0, True),
        (0o711, 0, 0, False),
        (0o710, 0, NOBODY, False),
        (0o701, 0, NOBODY, True),
        (0o100, NOBODY, 0, False),
        (0o011, NOBODY, 0, True),
    ],
)
def test_who_can_enter_a_directory(shared_root: Path, mode: int, owner: int, group: int, closed: bool) -> None:
    above = shared_root.parent
    os.chown(above, owner, group)
    above.chmod(mode)
    assert closed_above(shared_root, User(NOBODY, NOBODY)) == (above if closed else None)


def test_without_namespaces_the_failure_says_what_to_do(shared_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.chown(shared_root, NOBODY, NOBODY)
    shared_root.parent.chmod(0o700)
    monkeypatch.setattr(privileges, "CLONE_NEWNS", -1)
    message = without_root(shared_root, dict)["msg"]
    assert f"cannot enter {shared_root.parent}, which is above the shared root" in message
    assert f"chmod o+x {shared_root.parent}" in message


def test_a_shared_root_that_is_a_link_of_the_machine(shared_root: Path) -> None:
    os.chown(shared_root, NOBODY, NOBODY)
    link = shared_root.parent / "private"
    link.symlink_to(shared_root)
    assert user_of(link) == User(NOBODY, NOBODY)
