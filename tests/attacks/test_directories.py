"""Real processes: root prepares a shared root that jobs (another user) can write to, while they attack it."""

from __future__ import annotations

import multiprocessing
import os
import secrets
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.argus.verl.plugins.module_utils.cluster.directories import (
    DIRECTORIES,
    create_directories,
)
from ansible_collections.argus.verl.plugins.module_utils.privileges import User, become, user_of

ROOT, NOBODY = User(0, 0), User(65534, 65534)
OTHER = User(61001, 61001)
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


@pytest.fixture
def shared_root(tmp_path: Path) -> Path:
    (tmp_path / "shared").mkdir()
    # Nodes need no way to it, and neither do we.
    tmp_path.chmod(0o700)
    return tmp_path / "shared"


@pytest.fixture
def victim() -> Iterator[Path]:
    """A directory of root with a file, which everybody can reach."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory)
        path.chmod(0o755)
        (path / "data").write_text("precious")
        yield path


def assert_untouched(victim: Path, owner: User = ROOT) -> None:
    assert [path.name for path in victim.iterdir()] == ["data"]
    assert victim.stat().st_uid == owner.uid
    assert (victim / "data").stat().st_uid == 0


def create(shared_root: Path, user: User = NOBODY, check: bool = False) -> dict[str, Any]:
    return create_directories(shared_root, user, check)


def owners(shared_root: Path) -> set[int]:
    return {path.lstat().st_uid for path in shared_root.rglob("*")}


def give(path: Path, user: User = NOBODY) -> None:
    os.chown(path, *user, follow_symlinks=False)


@as_root
@pytest.mark.parametrize("owner", [ROOT, NOBODY])
def test_everything_belongs_to_the_nodes_user(shared_root: Path, owner: User) -> None:
    give(shared_root, owner)
    expected = create(shared_root, check=True)["created"]
    assert list(shared_root.iterdir()) == []
    result = create(shared_root)
    assert sorted(result["created"]) == sorted(str(path) for path in shared_root.rglob("*")) == sorted(expected)
    assert all((shared_root / name).is_dir() for name in DIRECTORIES)
    assert (owners(shared_root), shared_root.stat().st_uid) == ({NOBODY.uid}, owner.uid)
    assert create(shared_root) == {"created": []}


def test_ansible_that_is_not_root_creates_them_itself(shared_root: Path) -> None:
    user = User(os.getuid(), os.getgid())
    assert str(shared_root / "common" / "code" / "verl") in create(shared_root, user)["created"]


@as_root
@pytest.mark.parametrize("name", ["common", "common/code/verl", "jobs"])
@pytest.mark.parametrize("kind", ["link", "dangling link", "fifo"])
def test_what_is_in_the_way_is_named(shared_root: Path, victim: Path, name: str, kind: str) -> None:
    give(shared_root)
    create(shared_root)
    path = shared_root / name
    path.rename(shared_root / "aside")
    if "link" in kind:
        path.symlink_to(victim if kind == "link" else victim / "nothing")
    else:
        os.mkfifo(path)
    give(path)
    for check in (True, False):
        result = create(shared_root, check=check)
        assert result["failed"] and result["msg"].startswith(f"{path} is ")
    assert_untouched(victim)


@as_root
@pytest.mark.parametrize("owner", [ROOT, OTHER])
def test_a_second_user_is_refused_also_where_it_can_write(shared_root: Path, owner: User) -> None:
    """Its playbooks would work as the first user, whose jobs could replace its files."""
    give(shared_root, owner)
    assert not create(shared_root, OTHER).get("failed")
    for name in (".", *DIRECTORIES, "common", "common/code", "user"):
        (shared_root / name).chmod(0o1777)
    entries = sorted(shared_root.rglob("*"))
    assert "A shared root has one user" in create(shared_root)["msg"]
    assert sorted(shared_root.rglob("*")) == entries
    # What the message says to do.
    (shared_root / "second").mkdir()
    give(shared_root / "second")
    assert not create(shared_root / "second").get("failed")
    assert user_of(shared_root / "second") == NOBODY


@as_root
def test_what_belongs_to_somebody_else_stays_with_them(shared_root: Path) -> None:
    (shared_root / "common").mkdir()
    assert create(shared_root)["failed"]
    assert list((shared_root / "common").iterdir()) == [] and (shared_root / "common").stat().st_uid == 0
    (shared_root / "common").rmdir()
    entries = sorted(shared_root.rglob("*"))
    give(shared_root, OTHER)
    assert 'ray_node_user: "61001:61001"' in create(shared_root)["msg"]
    assert sorted(shared_root.rglob("*")) == entries


@as_root
@pytest.mark.parametrize("mode", [0o1777, 0o777, 0o775])
def test_root_creates_nothing_where_others_can_write(shared_root: Path, mode: int) -> None:
    shared_root.chmod(mode)
    result = create(shared_root)
    if mode & stat.S_IWOTH:
        assert owners(shared_root) == {NOBODY.uid}
    else:
        assert "datasets cannot be created there" in result["msg"]
        assert [path.name for path in shared_root.iterdir()] == []


@contextmanager
def attack(work: Callable[[], None], user: User = NOBODY) -> Iterator[None]:
    """Do something again and again as another user, while the block runs."""
    fork = multiprocessing.get_context("fork")
    started = fork.Event()

    def forever() -> None:
        become(user)
        while True:
            with suppress(OSError):
                work()
            started.set()

    process = fork.Process(target=forever, daemon=True)
    process.start()
    assert started.wait(10)
    try:
        yield
    finally:
        process.kill()
        process.join()


@as_root
@pytest.mark.parametrize("owner", [ROOT, NOBODY], ids=["of root", "of the nodes' user"])
@pytest.mark.parametrize("name", ["common/code", "common"])
def test_directories_that_are_swapped_during_the_run(shared_root: Path, victim: Path, name: str, owner: User) -> None:
    """Between a check and its use the directory becomes a link to another one, again and again."""
    give(shared_root)
    give(victim, owner)
    create(shared_root)
    # Like a job, the attacker has the shared root, but no way to it.
    top = os.open(shared_root, os.O_RDONLY)
    rename = partial(os.rename, src_dir_fd=top, dst_dir_fd=top)

    def swap() -> None:
        # A run may come in between, and create the directory.
        with suppress(OSError):
            rename("aside", secrets.token_hex(8))
        rename(name, "aside")
        os.symlink(victim, name, dir_fd=top)
        os.unlink(name, dir_fd=top)
        rename("aside", name)

    def attempt() -> bool:
        with suppress(OSError):
            os.rmdir("common/code/verl", dir_fd=top)
        return bool(create(shared_root).get("failed"))

    outcomes = {attempt()}
    deadline = time.monotonic() + 30
    with attack(swap):
        # Until the attack was noticed: the machine may be busy with other things.
        while len(outcomes) < 2 and time.monotonic() < deadline:
            outcomes.update(attempt() for _attempt in range(50))
    os.close(top)
    assert_untouched(victim, owner)
    assert outcomes == {True, False}
    assert owners(shared_root) == {NOBODY.uid}
