"""Source trees: links, special files, changes meanwhile, repairs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from staging_attacks import put_in_place
from staging_snapshots import SETUP, TAKEN, edit, files, git, manifest_at
from staging_store import NOBODY
from staging_tools import overlay, problems, snapshot, source_of

from argus.snapshot.errors import SourceError
from argus.snapshot.tree import open_within, source_directory
from argus.staging.result import Status
from argus.staging.snapshots import request

pytestmark = pytest.mark.usefixtures("identity")


@pytest.mark.parametrize("name", ["verl/__init__.py", "examples/more.sh"])
def test_a_directory_that_changes_meanwhile_is_refused(
    shared_root: Path, snapshots: Path, tree: Path, name: str
) -> None:
    source = source_of(str(tree), snapshots)
    (tree / name).write_text("changed = True\n")
    # What comes meanwhile is of no concern: the snapshot is what was described.
    if name == "examples/more.sh":
        path = snapshot(shared_root, source).path
        assert not Path(path, name).exists()
        return
    with pytest.raises(SourceError, match="changed while it was copied"):
        snapshot(shared_root, source)
    assert not list(snapshots.iterdir())


def test_links_to_files_are_followed_and_others_are_refused(shared_root: Path, snapshots: Path, tree: Path) -> None:
    (tree / "verl" / "linked.yaml").symlink_to(tree / "setup.py")
    copied = Path(snapshot(shared_root, source_of(str(tree), snapshots)).path, "verl", "linked.yaml")
    assert copied.read_text() == SETUP
    assert not copied.is_symlink()
    (tree / "verl" / "configs").symlink_to(tree / "examples")
    with pytest.raises(SourceError, match=r"verl/configs: is a link to a directory"):
        source_of(str(tree), snapshots)


def test_a_repository_does_not_bring_files_of_this_machine(
    shared_root: Path, snapshots: Path, repository: Path, tmp_path: Path
) -> None:
    (tmp_path / "id_ed25519").write_text("private")
    (repository / "verl" / "key.py").symlink_to(tmp_path / "id_ed25519")
    git(repository, "add", "--all")
    git(repository, "commit", "--quiet", "--message", "a gift")
    with pytest.raises(SourceError, match=r"verl/key\.py: leads out of .*, to .*/id_ed25519\. Replace it by a copy"):
        snapshot(shared_root, source_of(f"git+file://{repository}@main", snapshots))
    assert not list(snapshots.iterdir())


def test_a_repair_does_not_change_other_snapshots(shared_root: Path, snapshots: Path, tree: Path) -> None:
    first = snapshot(shared_root, source_of(str(tree), snapshots), "first")
    # An own file of equal content, with a time of its own.
    for file in (snapshots / "first" / "examples" / "run.sh", snapshots / "first" / "verl" / "__init__.py"):
        edit(file, file.read_text() + "# changed\n")
    second = snapshot(shared_root, source_of(str(tree), snapshots), "second")
    with pytest.raises(SourceError, match=r"first: no longer fits .*examples/run\.sh has .*verl/__init__\.py has"):
        snapshot(shared_root, source_of(str(tree), snapshots), "first")
    before = {name: Path(second.path, name).stat() for name in files(Path(second.path))}
    assert snapshot(shared_root, source_of(str(tree), snapshots), "first", repair=True).status == Status.REPAIRED
    assert Path(first.path, "examples", "run.sh").read_text() == "run\n"
    after = {name: Path(second.path, name).stat().st_mtime_ns for name in before}
    assert after == {name: stat.st_mtime_ns for name, stat in before.items()}
    for path in (first.path, second.path):
        assert {each.stat().st_mode & 0o222 for each in (Path(path), *Path(path).rglob("*"))} == {0}
        manifest = manifest_at(path)
        for name, entry in manifest["files"].items():
            assert Path(path, name).stat().st_mtime_ns == entry["mtime_ns"]
        assert problems(Path(path), full=True) == {}


@pytest.mark.parametrize("is_overlay", [False, True])
def test_a_link_that_leads_out_of_a_source_is_named(
    tree: Path, snapshots: Path, tmp_path: Path, is_overlay: bool
) -> None:
    (tmp_path / "id_ed25519").write_text("private")
    (tree / "verl" / "key.py").symlink_to(tmp_path / "id_ed25519")
    with pytest.raises(SourceError) as refused:
        overlay(tree, "mine") if overlay else source_of(str(tree), snapshots)
    there = (
        f"{tree}/verl/key.py: leads out of {tree}, to {tmp_path}/id_ed25519. Replace it by a copy of its destination"
    )
    assert str(refused.value) == f"{there}, or remove it."


def test_a_package_that_is_a_link_out_of_the_source_is_refused(tree: Path, snapshots: Path, tmp_path: Path) -> None:
    (tree / "recipe").rename(tmp_path / "aside")
    (tree / "recipe").symlink_to(tmp_path / "aside")
    with pytest.raises(SourceError, match="leads out of"):
        source_of(str(tree), snapshots)


def test_the_version_is_not_read_through_a_link_that_leads_out(tree: Path, snapshots: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("private")
    (tree / "verl" / "version" / "version").unlink()
    (tree / "verl" / "version" / "version").symlink_to(tmp_path / "secret")
    with pytest.raises(SourceError, match="leads out of"):
        source_of(str(tree), snapshots)


@pytest.mark.parametrize("form", ["FIFO", "socket", "device"])
def test_a_special_file_in_a_source_is_an_error(tree: Path, snapshots: Path, form: str) -> None:
    special = tree / "verl" / "special"
    if form == "device":
        special.symlink_to("/dev/zero")
    else:
        put_in_place(form, special, tree)
    with pytest.raises(SourceError, match=r"verl/special: is a link to a directory, a broken link or a special file"):
        source_of(str(tree), snapshots)


def test_a_file_that_becomes_a_fifo_is_not_opened(tree: Path) -> None:
    file = tree / "verl" / "__init__.py"
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(SourceError, match="special file"):
        open_within(str(file), tree)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_hard_link_to_a_file_of_another_user_is_refused(tree: Path, snapshots: Path, tmp_path: Path) -> None:
    (tmp_path / "roots").write_text("private")
    os.link(tmp_path / "roots", tree / "verl" / "stolen.py")
    os.chown(tree, NOBODY, NOBODY)
    with pytest.raises(SourceError, match=r"stolen\.py: is a hard link to a file of user id 0, who does not own"):
        source_of(str(tree), snapshots)


def test_a_name_that_cannot_be_shown_is_refused(tree: Path, snapshots: Path) -> None:
    (tree / "verl" / "a\x1b[2J.py").touch()
    with pytest.raises(SourceError, match="has characters that cannot be shown"):
        source_of(str(tree), snapshots)


def test_a_sparse_file_is_counted_before_it_is_read(tree: Path, snapshots: Path) -> None:
    with (tree / "verl" / "huge").open("wb") as file:
        file.truncate(8 << 40)
    with pytest.raises(SourceError, match="has files of more than 4 GiB"):
        source_of(str(tree), snapshots)


def test_the_size_of_a_source_must_fit(shared_root: Path, snapshots: Path, tree: Path, mine: Path) -> None:
    asked = request(shared_root, source_of(str(tree), snapshots), "mine", [overlay(mine, "mine")])
    files = [tree / name for name in TAKEN] + [mine / "main.py", mine / "deep" / "er.py"]
    assert asked.size() == sum(file.stat().st_size for file in files)


def test_no_link_leads_to_the_shared_root(tree: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "shared" / "user")
    for name in ("link", "link/src"):
        with pytest.raises(SourceError, match="leads to the shared root through a link"):
            source_directory(tmp_path / name, tmp_path / "shared")
    assert source_directory(tree, tmp_path / "shared") == tree
