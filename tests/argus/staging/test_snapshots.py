"""Snapshots of directories and of other snapshots, with overlays: real files, a real git."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from importlib.util import cache_from_source
from pathlib import Path

import pytest
from staging_attacks import put_in_place
from staging_snapshots import SETUP, TAKEN, commit, files, git, manifest_at, put
from staging_store import NOBODY, overlay, snapshot, source_of

from argus.staging.git import CheckoutState, Git
from argus.staging.manifest import Status
from argus.staging.options import StagingError
from argus.staging.source_tree import directory_requirements, open_within

pytestmark = pytest.mark.usefixtures("identity")


def test_a_snapshot_is_what_a_job_imports_whatever_the_umask(root: Path, tree: Path) -> None:
    before = os.umask(0o077)
    try:
        path = snapshot(root, source_of(str(tree), root), "mine").path
    finally:
        os.umask(before)
    entries = [Path(path), *Path(path).rglob("*")]
    assert {oct(entry.stat().st_mode & 0o777) for entry in entries if entry.is_file()} == {"0o444"}
    assert {oct(entry.stat().st_mode & 0o777) for entry in entries if entry.is_dir()} == {"0o555"}
    code = "import verl, mvp_marker; print(verl.__file__, mvp_marker.MARKER)"
    done = subprocess.run(
        [sys.executable, "-v", "-c", code], env={"PYTHONPATH": path}, capture_output=True, text=True, check=True
    )
    assert done.stdout == f"{path}/verl/__init__.py mine\n"
    assert f"code object from '{cache_from_source(f'{path}/verl/__init__.py')}'" in done.stderr


@pytest.mark.parametrize(
    "to", ["", "/verl", "..", "verl/../../mine", "./manifest.json", "mvp_marker.py/", "manifest.json/a"]
)
def test_an_overlay_stays_below_the_snapshot_and_beside_what_is_its_own(mine: Path, to: str) -> None:
    with pytest.raises(StagingError, match="cannot be put at"):
        overlay(mine, to)


def test_a_snapshot_with_overlays_is_a_further_snapshot(
    root: Path, snapshots: Path, repository: Path, mine: Path
) -> None:
    # Differences from its commit are recorded for the second snapshot as well.
    put(repository, {"verl/__init__.py": "not_committed = True\n"})
    base = snapshot(root, source_of(str(repository), snapshots), "Base")
    source, overlays = source_of("Base", snapshots), [overlay(mine, "my_package"), overlay(mine, "./recipe/dapo/")]
    further = snapshot(root, source, "", overlays)
    assert further.name.startswith("Base-")
    assert snapshot(root, source, "", overlays).status == Status.EXISTS
    assert files(Path(further.path)) == sorted(
        [
            *(*TAKEN, "manifest.json", "mvp_marker.py", "uncommitted.patch"),
            *("recipe/dapo/deep/er.py", "my_package/deep/er.py", "my_package/main.py"),
        ]
    )
    for name, text in (("recipe/dapo/main.py", "mine = True"), ("mvp_marker.py", f'MARKER = "{further.name}"')):
        assert Path(further.path, name).read_text() == f"{text}\n"
    manifest, before = manifest_at(further.path), manifest_at(base.path)
    assert manifest["overlays"] == [{"path": str(mine), "to": "my_package"}, {"path": str(mine), "to": "recipe/dapo"}]
    assert manifest["source"] == "Base"
    assert manifest["content_sha256"] != before["content_sha256"]
    for name in ("commit", "uncommitted", "untracked", "requirements", "verl_version"):
        assert manifest[name] == before[name]
    # And so on.
    last = snapshot(root, source_of(further.name, snapshots), "last", [overlay(mine, "recipe/more")])
    assert {"recipe/dapo/main.py", "recipe/more/main.py"} <= set(files(Path(last.path)))


def test_a_directory_becomes_a_snapshot_without_ignored_files(root: Path, snapshots: Path, tree: Path) -> None:
    first = snapshot(root, source_of(str(tree), snapshots))
    manifest = manifest_at(first.path)
    assert first.name == f"verl-0.10.0.dev0-{manifest['content_sha256'][:8]}"
    assert files(Path(first.path)) == sorted([*TAKEN, "manifest.json", "mvp_marker.py"])
    assert (manifest["source"], manifest["requirements"]) == (str(tree), ["ray[default]>=2.41.0", "pandas"])
    # Its .git is none.
    assert "commit" not in manifest
    (tree / "tests" / "test_all.py").write_text("of no concern")
    assert snapshot(root, source_of(str(tree), snapshots)).status == Status.EXISTS
    (tree / "verl" / "__init__.py").write_text("changed = True\n")
    second = snapshot(root, source_of(str(tree), snapshots))
    assert (second.status, second.name != first.name) == (Status.STAGED, True)
    # One code id never stands for two contents.
    with pytest.raises(StagingError, match=f"{first.name}: contains {tree} "):
        snapshot(root, source_of(str(tree), snapshots), first.name, check=True)


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("setup.py", "install_requires = open('requirements.txt').read()", []),
        ("pyproject.toml", '[project]\nname = "verl"\ndependencies = ["numpy>=2"]\n', ["numpy>=2"]),
        (
            "pyproject.toml",
            "[project.optional-dependencies]\nvllm = ['verl[core]', 'vllm; python_version > \"3\"']\nempty = []\n",
            ["verl[core] ; extra == 'vllm'", "vllm ; (python_version > \"3\") and extra == 'vllm'"],
        ),
        ("pyproject.toml", "not toml", []),
    ],
)
def test_requirements_of_a_directory_are_read_where_they_are_literal(
    tmp_path: Path, name: str, text: str, expected: list[str]
) -> None:
    (tmp_path / name).write_text(text)
    assert directory_requirements(tmp_path) == expected


def test_uncommitted_changes_are_stored_as_a_patch(
    root: Path, snapshots: Path, repository: Path, tmp_path: Path
) -> None:
    # Ends of lines and bytes that are not UTF-8 have to come out as they went in.
    windows, latin = repository / "verl" / "windows.py", repository / "verl" / "latin.py"
    windows.write_bytes(b"one\r\ntwo\r\n")
    latin.write_bytes(b"# gr\xfcn\n")
    head = commit(repository, {})
    windows.write_bytes(b"one\r\n2\r\n")
    latin.write_bytes(b"# gr\xfcner\n")
    (repository / "recipe" / "dapo" / "main.py").unlink()
    put(repository, {"verl/binary.bin": "\0\1", "verl/new.py": "", "setup.py": "of no concern"})
    git(repository, "add", "verl/binary.bin")
    staged = snapshot(root, source_of(str(repository), snapshots))
    manifest = manifest_at(staged.path)
    assert {"commit": head, "uncommitted": True, "untracked": ["verl/new.py"]}.items() <= manifest.items()
    assert "uncommitted.patch" in manifest["files"]
    # The commit and the patch are what was staged.
    git(tmp_path, "clone", "--quiet", str(repository), "again")
    git(tmp_path / "again", "apply", f"{staged.path}/uncommitted.patch")
    put(tmp_path / "again", {"verl/new.py": ""})
    again = source_of(str(tmp_path / "again"), snapshots)
    assert snapshot(root, again, staged.name).status == Status.EXISTS


def test_a_directory_that_changes_meanwhile_is_refused(root: Path, snapshots: Path, tree: Path) -> None:
    source = source_of(str(tree), snapshots)
    # What comes meanwhile is of no concern: the snapshot is what was described.
    (tree / "examples/more.sh").write_text("more\n")
    assert "examples/more.sh" not in files(Path(snapshot(root, source, "first").path))
    (tree / "verl/__init__.py").write_text("changed = True\n")
    with pytest.raises(StagingError, match="changed while it was copied"):
        snapshot(root, source, "second")
    assert [path.name for path in snapshots.iterdir()] == ["first"]


def link_to_a_file_elsewhere(verl: Path) -> None:
    (verl.parents[1] / "id_ed25519").write_text("private")
    (verl / "key.py").symlink_to(verl.parents[1] / "id_ed25519")


def sparse(verl: Path) -> None:
    with (verl / "huge").open("wb") as file:
        file.truncate(8 << 40)


@pytest.mark.parametrize(
    ("spoil", "problem"),
    [
        (link_to_a_file_elsewhere, "/verl/key.py: leads out of "),
        (
            lambda verl: (verl / "configs").symlink_to(verl.parent / "examples"),
            "verl/configs: is a link to a directory",
        ),
        (lambda verl: (verl / "special").symlink_to("/dev/zero"), "verl/special: is a link to a directory, a broken"),
        (lambda verl: os.mkfifo(verl / "special"), "or a special file"),
        (lambda verl: put_in_place("socket", verl / "special", verl), "or a special file"),
        (lambda verl: (verl / "a\x1b[2J.py").touch(), "has characters that cannot be shown"),
        (sparse, "has files of more than 4 GiB"),
    ],
)
def test_what_a_source_may_not_have(tree: Path, snapshots: Path, spoil: Callable[[Path], object], problem: str) -> None:
    spoil(tree / "verl")
    for read in (lambda: source_of(str(tree), snapshots), lambda: overlay(tree, "mine")):
        with pytest.raises(StagingError, match=re.escape(problem)):
            read()


def test_links_to_files_are_followed_and_no_fifo_is_opened(root: Path, snapshots: Path, tree: Path) -> None:
    (tree / "verl" / "linked.yaml").symlink_to(tree / "setup.py")
    copied = Path(snapshot(root, source_of(str(tree), snapshots)).path, "verl", "linked.yaml")
    assert copied.read_text() == SETUP and not copied.is_symlink()
    # A FIFO takes the place of a file meanwhile.
    os.mkfifo(tree / "fifo")
    with pytest.raises(StagingError, match="special file"):
        open_within(str(tree / "fifo"), tree)


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
    return Git().checkout_state(directory, ["verl"])


def test_settings_that_only_show_or_speed_up_run_nothing(
    root: Path, snapshots: Path, repository: Path, program: str, pwned: Path
) -> None:
    head = commit(repository, {".gitattributes": "* diff=evil\n"})
    put(repository, {"verl/__init__.py": "changed = True\n", "verl/new.py": ""})
    for name in ("core.fsmonitor", "diff.evil.textconv", "diff.evil.command", "diff.external", "core.pager"):
        git(repository, "config", name, program)
    staged = snapshot(root, source_of(str(repository), snapshots))
    assert not pwned.exists()
    manifest = manifest_at(staged.path)
    assert (manifest["commit"], manifest["uncommitted"], manifest["untracked"]) == (head, True, ["verl/new.py"])
    assert "+changed = True" in Path(staged.path, "uncommitted.patch").read_text()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
@pytest.mark.parametrize("name", [".", ".git"])
def test_a_checkout_of_another_user_is_a_plain_directory(
    root: Path, snapshots: Path, repository: Path, program: str, pwned: Path, name: str
) -> None:
    """Its configuration names programs that git runs."""
    assert state_of(repository)
    git(repository, "config", "filter.evil.clean", program)
    put(repository, {".gitattributes": "* filter=evil\n", "verl/__init__.py": "changed = True\n"})
    os.chown(repository / name, NOBODY, NOBODY)
    staged = snapshot(root, source_of(str(repository), snapshots))
    assert "commit" not in manifest_at(staged.path)
    assert not pwned.exists()


def test_a_worktree_is_a_checkout(repository: Path, tmp_path: Path) -> None:
    # A directory in a checkout is a plain one.
    put(repository, {"inner/verl/__init__.py": "", "inner/.git/HEAD": ""})
    assert state_of(repository / "inner") is None and state_of(repository / "verl") is None
    git(repository, "worktree", "add", "--quiet", "-b", "other", str(tmp_path / "worktree"))
    head = commit(tmp_path / "worktree", {"verl/more.py": "more = 1\n"})
    put(tmp_path / "worktree", {"verl/more.py": "more = 2\n"})
    git(repository, "pack-refs", "--all")
    state = state_of(tmp_path / "worktree")
    assert state is not None
    assert state[0] == head
    assert b"+more = 2" in state[1]
