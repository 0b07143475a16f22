"""Checkouts: their commit, and what differs from it. A real git."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from staging_snapshots import commit, git, manifest_at, put
from staging_store import NOBODY
from staging_tools import snapshot, source_of

from argus.snapshot.errors import SourceError
from argus.snapshot.git import CheckoutState, Git

pytestmark = pytest.mark.usefixtures("identity")


@pytest.fixture
def pwned(tmp_path: Path) -> Path:
    return tmp_path / "PWNED"


@pytest.fixture
def program(tmp_path: Path, pwned: Path) -> str:
    """A program that leaves a mark, and then works as a filter."""
    path = tmp_path / "program"
    path.write_text(f"#!/bin/sh\ntouch {pwned}\ncat 2>/dev/null\n")
    path.chmod(0o755)
    return str(path)


def state_of(directory: Path) -> CheckoutState | None:
    return Git().state_of(directory, ["verl"])


@pytest.mark.parametrize(
    "name",
    ["core.fsmonitor", "diff.evil.textconv", "diff.evil.command", "diff.external", "core.pager", "core.sshCommand"],
)
def test_settings_that_only_show_or_speed_up_run_nothing(
    shared_root: Path, snapshots: Path, repository: Path, program: str, pwned: Path, name: str
) -> None:
    commit(repository, {".gitattributes": "* diff=evil\n"})
    head = git(repository, "rev-parse", "HEAD")
    put(repository, {"verl/__init__.py": "changed = True\n", "verl/new.py": ""})
    git(repository, "config", name, program)
    staged = snapshot(shared_root, source_of(str(repository), snapshots))
    assert not pwned.exists()
    manifest = manifest_at(staged.path)
    assert (manifest["commit"], manifest["uncommitted"], manifest["untracked"]) == (head, True, ["verl/new.py"])
    assert "+changed = True" in Path(staged.path, "uncommitted.patch").read_text()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
@pytest.mark.parametrize("name", [".", ".git"])
def test_a_checkout_of_another_user_is_a_plain_directory(
    shared_root: Path, snapshots: Path, repository: Path, program: str, pwned: Path, name: str
) -> None:
    """Its configuration names programs that git runs."""
    assert state_of(repository)
    git(repository, "config", "filter.evil.clean", program)
    put(repository, {".gitattributes": "* filter=evil\n", "verl/__init__.py": "changed = True\n"})
    os.chown(repository / name, NOBODY, NOBODY)
    staged = snapshot(shared_root, source_of(str(repository), snapshots))
    assert "commit" not in manifest_at(staged.path)
    assert not pwned.exists()


def test_a_directory_in_a_checkout_is_a_plain_directory(repository: Path) -> None:
    put(repository, {"inner/verl/__init__.py": "", "inner/.git/HEAD": ""})
    assert state_of(repository / "inner") is None
    assert state_of(repository / "verl") is None


def test_a_worktree_is_a_checkout(repository: Path, tmp_path: Path) -> None:
    git(repository, "worktree", "add", "--quiet", "-b", "other", str(tmp_path / "worktree"))
    head = commit(tmp_path / "worktree", {"verl/more.py": "more = 1\n"})
    put(tmp_path / "worktree", {"verl/more.py": "more = 2\n"})
    git(repository, "pack-refs", "--all")
    state = state_of(tmp_path / "worktree")
    assert state is not None
    assert state[0] == head
    assert b"+more = 2" in state[1]


def test_a_change_in_the_second_of_the_last_commit_is_in_the_patch(repository: Path) -> None:
    # All of it in one second, in which no time and no size changes.
    time.sleep(1 - time.time() % 1)
    commit(repository, {"verl/more.py": "more = 1\n"})
    put(repository, {"verl/more.py": "more = 2\n"})
    time.sleep(1.1)
    state = state_of(repository)
    assert state is not None and b"+more = 2" in state[1]


@pytest.mark.parametrize(
    "source",
    [
        *("git+ext::sh -c touch% PWNED@main", "git+file:///x@--upload-pack=touch PWNED", "git+https://-oProxy/x@main"),
        *("git+https://host/x@-main", "git+https://host/x@a\nb", "git+https://host/x@a\0b", "git+https://host/\0@main"),
        *("git+fd::17/x@main", "git+-x@main", "git+ssh://-oProxyCommand=x/y@main", "git+https://host/x@a b"),
    ],
)
def test_an_address_is_never_an_option(snapshots: Path, source: str) -> None:
    with pytest.raises(SourceError, match="is not a repository with a ref"):
        source_of(source, snapshots)


@pytest.mark.parametrize("name", ["uploadpack.packObjectsHook", "core.fsmonitor", "core.alternateRefsCommand"])
def test_a_repository_of_this_machine_runs_nothing(
    shared_root: Path, snapshots: Path, repository: Path, program: str, pwned: Path, name: str
) -> None:
    git(repository, "config", name, program)
    commit(repository, {".gitattributes": "* filter=evil\n"})
    pwned.unlink(missing_ok=True)
    snapshot(shared_root, source_of(f"git+file://{repository}@main", snapshots))
    assert not pwned.exists()
