"""Checkouts whose configuration runs programs. A real git; every vector runs `touch PWNED`."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from staging_snapshots import TAKEN, commit, git, manifest_at, put
from staging_store import NOBODY
from staging_tools import snapshot

from argus.staging import checkout
from argus.staging.checkout import state_of
from argus.staging.errors import StagingError
from argus.staging.sources import source_of

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


# Settings of a repository; {} is the program.
SETTINGS: dict[str, dict[str, str]] = {
    "fsmonitor": {"core.fsmonitor": "{}"},
    "fsmonitor, version 1": {"core.fsmonitor": "{}", "core.fsmonitorHookVersion": "1"},
    "clean": {"filter.evil.clean": "{}", "filter.evil.required": "true"},
    "smudge": {"filter.evil.smudge": "{}"},
    "process": {"filter.evil.process": "{}", "filter.evil.required": "true"},
    "lfs": {"filter.lfs.clean": "{}", "filter.lfs.process": "{}"},
    "textconv": {"diff.evil.textconv": "{}"},
    "cached textconv": {"diff.evil.textconv": "{}", "diff.evil.cachetextconv": "true"},
    "diff command": {"diff.evil.command": "{}"},
    "external diff": {"diff.external": "{}"},
    "pager": {"core.pager": "{}", "pager.diff": "{}"},
    "ssh": {"core.sshCommand": "{}", "remote.origin.url": "ssh://host/x", "remote.origin.promisor": "true"},
    "askpass": {"core.askPass": "{}"},
    "editor": {"core.editor": "{}"},
    "gpg": {"gpg.program": "{}", "log.showSignature": "true"},
    "credential": {"credential.helper": "!{}"},
    "proxy": {"core.gitProxy": "{}"},
    "alternates": {"core.alternateRefsCommand": "{}"},
    "aliases": {"alias.diff": "!{}", "alias.rev-parse": "!{}", "alias.ls-files": "!{}"},
    "pack objects": {"uploadpack.packObjectsHook": "{}"},
    "ext": {"protocol.ext.allow": "always", "remote.origin.url": "ext::{}", "remote.origin.promisor": "true"},
    "instead of": {"url.ext::{}.insteadOf": "https://", "protocol.ext.allow": "always"},
    "submodule": {"submodule.verl/sub.update": "!{}", "submodule.verl/sub.url": "ext::{}"},
}


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_no_setting_of_a_checkout_runs_a_program(
    shared_root: Path, snapshots: Path, repository: Path, program: str, pwned: Path, settings: dict[str, str]
) -> None:
    commit(
        repository, {".gitattributes": "* filter=evil diff=evil export-subst\n*.bin filter=lfs\n", "verl/a.bin": "x"}
    )
    put(repository, {"verl/__init__.py": "changed = True\n", "verl/new.py": "", "verl/a.bin": "y"})
    head = git(repository, "rev-parse", "HEAD")
    for name, value in settings.items():
        git(repository, "config", name.replace("{}", program), value.replace("{}", program))
    pwned.unlink(missing_ok=True)
    staged = snapshot(shared_root, source_of(str(repository), snapshots))
    assert not pwned.exists()
    # And it is still recorded what is checked out, and what was changed.
    manifest = manifest_at(staged.path)
    assert (manifest["commit"], manifest["uncommitted"], manifest["untracked"]) == (head, True, ["verl/new.py"])
    assert "+changed = True" in Path(staged.path, "uncommitted.patch").read_text()


def test_these_settings_would_run_programs(repository: Path, program: str, pwned: Path) -> None:
    """The test above would notice: git itself runs these."""
    commit(repository, {".gitattributes": "* filter=evil diff=evil\n"})
    put(repository, {"verl/__init__.py": "changed = True\n"})
    for name in ("core.fsmonitor", "filter.evil.clean", "diff.evil.textconv"):
        git(repository, "config", name, program)
        subprocess.run(["git", "-C", str(repository), "diff", "HEAD"], capture_output=True, check=False)
        assert pwned.exists()
        pwned.unlink()
        git(repository, "config", "--unset", name)


@pytest.mark.parametrize("name", ["post-index-change", "fsmonitor-watchman", "post-checkout", "pre-commit"])
def test_no_hook_of_a_checkout_runs(
    shared_root: Path, snapshots: Path, repository: Path, program: str, pwned: Path, name: str
) -> None:
    git(repository, "config", "core.hooksPath", str(repository / "hooks"))
    for hooks in (repository / "hooks", repository / ".git" / "hooks"):
        hooks.mkdir(exist_ok=True)
        (hooks / name).symlink_to(program)
    put(repository, {"verl/__init__.py": "changed = True\n"})
    assert manifest_at(snapshot(shared_root, source_of(str(repository), snapshots)).path)["uncommitted"]
    assert not pwned.exists()


def test_included_settings_and_those_of_a_worktree_run_nothing(
    shared_root: Path, snapshots: Path, repository: Path, program: str, pwned: Path, tmp_path: Path
) -> None:
    other = put(tmp_path / "other", {"config": f"[core]\n\tfsmonitor = {program}\n"}) / "config"
    git(repository, "config", "include.path", str(other))
    git(repository, "config", "extensions.worktreeConfig", "true")
    put(repository, {".git/config.worktree": f"[core]\n\tfsmonitor = {program}\n\tworktree = {tmp_path}\n"})
    put(repository, {"verl/__init__.py": "changed = True\n"})
    patch = Path(snapshot(shared_root, source_of(str(repository), snapshots)).path, "uncommitted.patch").read_text()
    assert "+changed = True" in patch
    assert not pwned.exists()


def test_a_submodule_with_its_own_settings_runs_nothing(
    shared_root: Path, snapshots: Path, repository: Path, program: str, pwned: Path, tmp_path: Path
) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    git(inner, "init", "--quiet")
    commit(inner, {"inner.py": ""})
    git(repository, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(inner), "verl/sub")
    git(repository, "commit", "--quiet", "--message=submodule")
    for name in ("core.fsmonitor", "filter.evil.clean"):
        git(repository / "verl" / "sub", "config", name, program)
    put(repository, {"verl/sub/.gitattributes": "* filter=evil\n", "verl/sub/inner.py": "changed = True\n"})
    pwned.unlink(missing_ok=True)
    staged = snapshot(shared_root, source_of(str(repository), snapshots))
    assert not pwned.exists()
    assert Path(staged.path, "verl/sub/inner.py").read_text() == "changed = True\n"
    assert manifest_at(staged.path)["commit"] == git(repository, "rev-parse", "HEAD")


def test_a_bare_repository_inside_runs_nothing(
    shared_root: Path, snapshots: Path, repository: Path, program: str, pwned: Path
) -> None:
    bare = repository / "verl" / "bare"
    bare.mkdir()
    git(bare, "init", "--quiet", "--bare")
    git(bare, "config", "core.fsmonitor", program)
    git(bare, "config", "core.worktree", str(repository))
    snapshot(shared_root, source_of(str(repository), snapshots))
    assert not pwned.exists()


def plain(directory: Path) -> bool:
    return state_of(directory, ["verl"]) is None


def redirected(repository: Path, private: Path) -> Path:
    directory = put(repository.parent / "redirected", TAKEN)
    (directory / ".git").write_text(f"gitdir: {private}/.git\n")
    return directory


def with_alternates(repository: Path, private: Path) -> Path:
    put(repository, {".git/objects/info/alternates": f"{private}/.git/objects\n"})
    put(repository, {".git/HEAD": git(private, "rev-parse", "HEAD") + "\n"})
    return repository


def with_linked_objects(repository: Path, private: Path) -> Path:
    (repository / ".git" / "objects").rename(repository / "aside")
    (repository / ".git" / "objects").symlink_to(private / ".git" / "objects")
    return repository


def with_a_linked_pack(repository: Path, private: Path) -> Path:
    (repository / ".git" / "objects" / "pack" / "x").symlink_to(private / ".git" / "objects")
    return repository


def with_a_link(repository: Path, private: Path) -> Path:
    (repository / ".git").rename(repository / "aside")
    (repository / ".git").symlink_to(private / ".git")
    return repository


def with_a_linked_head(repository: Path, private: Path) -> Path:
    (repository / ".git" / "HEAD").unlink()
    (repository / ".git" / "HEAD").symlink_to(private / ".git" / "HEAD")
    return repository


def with_a_head_outside(repository: Path, private: Path) -> Path:
    put(repository, {".git/HEAD": "ref: refs/../../../private/.git/refs/heads/main\n"})
    return repository


def with_a_fifo(repository: Path, private: Path) -> Path:
    (repository / ".git" / "HEAD").unlink()
    os.mkfifo(repository / ".git" / "HEAD")
    return repository


def with_garbage(repository: Path, private: Path) -> Path:
    (repository / ".git" / "index").write_bytes(b"DIRC" + b"\xff" * 4096)
    return repository


REDIRECTIONS = (
    *(redirected, with_alternates, with_linked_objects, with_a_linked_pack, with_a_link),
    *(with_a_linked_head, with_a_head_outside, with_a_fifo, with_garbage),
)


@pytest.mark.parametrize("redirect", REDIRECTIONS)
def test_a_checkout_that_points_elsewhere_is_a_plain_directory(
    shared_root: Path, snapshots: Path, repository: Path, tmp_path: Path, redirect: Callable[[Path, Path], Path]
) -> None:
    """Otherwise the patch would show what a repository of this user contains."""
    private = tmp_path / "private"
    private.mkdir()
    git(private, "init", "--quiet", "--initial-branch=main")
    commit(private, {"verl/secret.py": "secret = 1\n"})
    directory = redirect(repository, private)
    assert plain(directory)
    staged = snapshot(shared_root, source_of(str(directory), snapshots))
    assert "commit" not in manifest_at(staged.path)
    assert not Path(staged.path, "uncommitted.patch").exists()


def test_a_worktree_is_a_checkout(repository: Path, tmp_path: Path) -> None:
    git(repository, "worktree", "add", "--quiet", "-b", "other", str(tmp_path / "worktree"))
    head = commit(tmp_path / "worktree", {"verl/more.py": "more = 1\n"})
    put(tmp_path / "worktree", {"verl/more.py": "more = 2\n"})
    git(repository, "pack-refs", "--all")
    state = state_of(tmp_path / "worktree", ["verl"])
    assert state is not None
    assert state.commit == head
    assert b"+more = 2" in state.patch


def test_a_change_in_the_second_of_the_last_commit_is_in_the_patch(repository: Path) -> None:
    # All of it in one second, in which no time and no size changes.
    time.sleep(1 - time.time() % 1)
    head = commit(repository, {"verl/more.py": "more = 1\n"})
    put(repository, {"verl/more.py": "more = 2\n"})
    time.sleep(1.1)
    state = state_of(repository, ["verl"])
    assert state is not None
    assert state.commit == head
    assert b"+more = 2" in state.patch


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
@pytest.mark.parametrize("name", [".", ".git", ".git/objects"])
def test_a_checkout_of_another_user_is_a_plain_directory(repository: Path, name: str) -> None:
    assert not plain(repository)
    os.chown(repository / name, NOBODY, NOBODY)
    assert plain(repository)


def test_a_fifo_does_not_stop_staging(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkout, "GIT_SECONDS", 1.0)
    os.mkfifo(repository / ".gitattributes")
    started = time.monotonic()
    assert plain(repository)
    assert time.monotonic() - started < 60


def test_files_of_git_lfs_are_not_in_the_patch(repository: Path) -> None:
    commit(repository, {".gitattributes": "*.bin filter=lfs diff=lfs merge=lfs -text\n", "verl/a.bin": "a pointer"})
    put(repository, {"verl/a.bin": "the file itself"})
    state = state_of(repository, ["verl"])
    assert state is not None
    assert state.patch == b""


@pytest.mark.parametrize(
    "source",
    [
        *("git+ext::sh -c touch% PWNED@main", "git+file:///x@--upload-pack=touch PWNED", "git+https://-oProxy/x@main"),
        *("git+https://host/x@-main", "git+https://host/x@a\nb", "git+https://host/x@a\0b", "git+https://host/\0@main"),
        *("git+fd::17/x@main", "git+-x@main", "git+ssh://-oProxyCommand=x/y@main", "git+https://host/x@a b"),
    ],
)
def test_an_address_is_never_an_option(snapshots: Path, source: str) -> None:
    with pytest.raises(StagingError, match="is not a repository with a ref"):
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
