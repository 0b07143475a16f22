"""Real processes: root gives up its rights, for work in a tree that another user can write to."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.argus.verl.plugins.module_utils.privileges import (
    UNPRIVILEGED,
    User,
    as_user,
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
    assert without_root(shared_root, who)["uids"] == [0] * 3
    assert user_of(shared_root / "missing") == User(0, 0)


def test_a_link_to_a_file_of_root_is_a_failure(shared_root: Path) -> None:
    os.chown(shared_root, NOBODY, NOBODY)
    secret = shared_root / "secret"
    secret.write_text("of root")
    secret.chmod(0o400)
    (shared_root / "lock").symlink_to("secret")

    def attack() -> dict[str, Any]:
        return {"content": Path("lock").read_text()}

    result = without_root(shared_root, attack)
    assert result["failed"] is True
    assert "PermissionError" in result["msg"]
    assert "line " in result["msg"]


def test_no_link_leads_out_of_the_shared_root(shared_root: Path) -> None:
    os.chown(shared_root, NOBODY, NOBODY)
    (shared_root.parent / "secret").write_text("of everybody")
    for number, target in enumerate((shared_root.parent / "secret", "../secret")):
        (shared_root / str(number)).symlink_to(target)
    result = without_root(shared_root, lambda: {"found": [Path(name).exists() for name in "01"]})
    assert result == {"found": [False, False]}


def test_a_child_that_dies_is_a_failure(shared_root: Path) -> None:
    result = as_user(User(NOBODY, NOBODY), shared_root, lambda: os.kill(os.getpid(), 9) or {})
    assert "ended without a result" in result["msg"]


def test_a_child_cannot_become_root_again(shared_root: Path) -> None:
    result = as_user(User(NOBODY, NOBODY), shared_root, lambda: os.setuid(0) or {})
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
    (shared_root / "jobs" / "one").write_text("of a job")

    def look() -> dict[str, Any]:
        Path("written").touch()
        return {"one": Path("jobs/one").read_text()}

    assert without_root(shared_root, look) == {"one": "of a job"}
    assert (shared_root / "written").stat().st_uid == NOBODY


def test_a_shared_root_that_is_a_link_of_the_machine(shared_root: Path) -> None:
    os.chown(shared_root, NOBODY, NOBODY)
    link = shared_root.parent / "private"
    link.symlink_to(shared_root)
    assert user_of(link) == User(NOBODY, NOBODY)
