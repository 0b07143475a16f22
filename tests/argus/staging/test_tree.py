"""Source trees: links, large files, and equal files of other snapshots."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from staging_attacks import put_in_place
from staging_snapshots import SETUP, TAKEN, edit, files, git, inode, manifest_at, put
from staging_store import NOBODY, sha256
from staging_tools import problems, snapshot

from argus.staging import tree as tree_module
from argus.staging.errors import StagingError
from argus.staging.manifest import MANIFEST, FileEntry, Manifest
from argus.staging.result import Status
from argus.staging.snapshots import Overlay, request
from argus.staging.sources import source_of
from argus.staging.store import remove
from argus.staging.tree import LARGE_BYTES, NEIGHBOURS, Store, open_within

pytestmark = pytest.mark.usefixtures("identity")


def test_a_directory_that_changes_meanwhile_is_staged_as_it_was_read(
    shared_root: Path, snapshots: Path, tree: Path
) -> None:
    source = source_of(str(tree), snapshots)
    (tree / "verl" / "__init__.py").write_text("changed = True\n")
    staged = snapshot(shared_root, source)
    assert (Path(staged.path) / "verl" / "__init__.py").read_text() == TAKEN["verl/__init__.py"]
    assert problems(Path(staged.path), full=True) == {}


def test_a_file_that_comes_meanwhile_is_noticed(shared_root: Path, snapshots: Path, tree: Path) -> None:
    source = source_of(str(tree), snapshots)
    (tree / "verl" / "more.py").touch()
    with pytest.raises(StagingError, match="changed while it was copied"):
        snapshot(shared_root, source)
    assert not list(snapshots.iterdir())


def test_a_large_file_that_changes_meanwhile_is_refused(
    shared_root: Path, snapshots: Path, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree_module, "LARGE_BYTES", 3)
    source = source_of(str(tree), snapshots)
    (tree / "setup.py").write_text("")
    (tree / "verl" / "trainer" / "config" / "ppo_trainer.yaml").write_text("changed: true\n")
    with pytest.raises(StagingError, match=r"ppo_trainer\.yaml: changed while it was copied"):
        snapshot(shared_root, source)
    assert not list(snapshots.iterdir())


def test_links_to_files_are_followed_and_others_are_refused(shared_root: Path, snapshots: Path, tree: Path) -> None:
    (tree / "verl" / "linked.yaml").symlink_to(tree / "setup.py")
    copied = Path(snapshot(shared_root, source_of(str(tree), snapshots)).path, "verl", "linked.yaml")
    assert copied.read_text() == SETUP
    assert not copied.is_symlink()
    (tree / "verl" / "configs").symlink_to(tree / "examples")
    with pytest.raises(StagingError, match=r"verl/configs: is a link to a directory"):
        source_of(str(tree), snapshots)


def test_a_repository_does_not_bring_files_of_this_machine(
    shared_root: Path, snapshots: Path, repository: Path, tmp_path: Path
) -> None:
    (tmp_path / "id_ed25519").write_text("private")
    (repository / "verl" / "key.py").symlink_to(tmp_path / "id_ed25519")
    git(repository, "add", "--all")
    git(repository, "commit", "--quiet", "--message", "a gift")
    with pytest.raises(StagingError, match=r"verl/key\.py: leads out of .*, to .*/id_ed25519\. Replace it by a copy"):
        snapshot(shared_root, source_of(f"git+file://{repository}@main", snapshots))
    assert not list(snapshots.iterdir())


def test_unchanged_files_are_not_stored_twice(shared_root: Path, snapshots: Path, tree: Path, mine: Path) -> None:
    first = snapshot(shared_root, source_of(str(tree), snapshots), "first")
    (tree / "recipe" / "dapo" / "main.py").write_text("changed = True\n")
    second = snapshot(shared_root, source_of(str(tree), snapshots), "second")
    third = snapshot(shared_root, source_of("second", snapshots), "third", [Overlay.of(str(mine), "examples")])
    for name in TAKEN:
        shared = name != "recipe/dapo/main.py"
        assert (inode(first.path, name) == inode(second.path, name)) == shared
        assert inode(second.path, name) == inode(third.path, name)
    assert inode(first.path, "mvp_marker.py") != inode(second.path, "mvp_marker.py")
    for staged in (first, second, third):
        assert problems(Path(staged.path)) == {}
        assert problems(Path(staged.path), full=True) == {}
    # Removing one takes nothing from the others.
    for name in ("first", "second"):
        remove("snapshot", name, snapshots / name, list)
    assert problems(Path(third.path), full=True) == {}


def test_a_neighbours_file_that_was_changed_by_hand_does_not_spread(
    shared_root: Path, snapshots: Path, tree: Path
) -> None:
    first = snapshot(shared_root, source_of(str(tree), snapshots), "first")
    edit(Path(first.path, "examples", "run.sh"), "ran\n")
    second = snapshot(shared_root, source_of(str(tree), snapshots), "second")
    assert inode(first.path, "examples", "run.sh") != inode(second.path, "examples", "run.sh")
    assert inode(first.path, "recipe", "dapo", "main.py") == inode(second.path, "recipe", "dapo", "main.py")
    assert Path(second.path, "examples", "run.sh").read_text() == "run\n"
    assert problems(Path(second.path), full=True) == {}


def test_a_neighbours_file_that_may_be_written_is_not_shared(shared_root: Path, snapshots: Path, tree: Path) -> None:
    # Its content is right now, and nothing keeps it so.
    first = snapshot(shared_root, source_of(str(tree), snapshots), "first")
    Path(first.path, "examples", "run.sh").chmod(0o644)
    second = snapshot(shared_root, source_of(str(tree), snapshots), "second")
    assert inode(first.path, "examples", "run.sh") != inode(second.path, "examples", "run.sh")
    assert inode(first.path, "recipe", "dapo", "main.py") == inode(second.path, "recipe", "dapo", "main.py")


def test_a_large_file_of_a_neighbour_is_compared_by_its_content(shared_root: Path, snapshots: Path, tree: Path) -> None:
    large = bytes(LARGE_BYTES + 1)
    (tree / "examples" / "large").write_bytes(large)
    first = snapshot(shared_root, source_of(str(tree), snapshots), "first")
    second = snapshot(shared_root, source_of(str(tree), snapshots), "second")
    assert inode(first.path, "examples", "large") == inode(second.path, "examples", "large")
    for byte in (b"\1", b"\2", b"\3"):
        # As long as before, with a hash that is larger or smaller.
        edit(Path(first.path, "examples", "large"), (large[:-1] + byte).decode())
        third = snapshot(shared_root, source_of(str(tree), snapshots), f"third-{byte[0]}")
        assert inode(first.path, "examples", "large") != inode(third.path, "examples", "large")
        assert Path(third.path, "examples", "large").read_bytes() == large


def test_a_broken_neighbour_is_no_obstacle(shared_root: Path, snapshots: Path, tree: Path) -> None:
    put(snapshots, {"broken/manifest.json": "{", "foreign/verl/__init__.py": "", ".hidden/manifest.json": "{}"})
    assert snapshot(shared_root, source_of(str(tree), snapshots)).status == Status.STAGED


def test_a_repair_does_not_change_other_snapshots(shared_root: Path, snapshots: Path, tree: Path) -> None:
    first = snapshot(shared_root, source_of(str(tree), snapshots), "first")
    # An own file of equal content, with a time of its own.
    for file in (snapshots / "first" / "examples" / "run.sh", snapshots / "first" / "verl" / "__init__.py"):
        edit(file, file.read_text() + "# changed\n")
    second = snapshot(shared_root, source_of(str(tree), snapshots), "second")
    with pytest.raises(StagingError, match=r"first: no longer fits .*examples/run\.sh has .*verl/__init__\.py has"):
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


def test_a_repair_does_not_take_the_broken_file_for_a_good_one(shared_root: Path, snapshots: Path, tree: Path) -> None:
    """One that looks unchanged is just what a further snapshot would link to."""
    target = Path(snapshot(shared_root, source_of(str(tree), snapshots), "mine").path)
    file = target / "examples" / "run.sh"
    stat = file.stat()
    edit(file, "ran\n")
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    source = source_of(str(tree), snapshots)
    assert snapshot(shared_root, source, "mine").status == Status.EXISTS
    assert snapshot(shared_root, source, "mine", full=True, repair=True).status == Status.REPAIRED
    assert file.read_text() == "run\n"
    assert snapshot(shared_root, source, "mine", full=True).status == Status.EXISTS


def test_only_the_newest_snapshots_are_searched_for_equal_files(tmp_path: Path) -> None:
    for number in range(NEIGHBOURS + 1):
        directory = tmp_path / f"snapshot-{number}"
        directory.mkdir()
        manifest = Manifest({"kind": "snapshot"}, {"file": FileEntry(1, sha256(f"{number}"), mtime_ns=1)})
        (directory / MANIFEST).write_text(manifest.text())
        os.utime(directory / MANIFEST, (number, number))
    # Builds and locks are hidden, and not searched.
    (tmp_path / ".hidden").mkdir()
    (tmp_path / ".hidden" / MANIFEST).write_text(
        Manifest({"kind": "snapshot"}, {"file": FileEntry(1, sha256("hidden"), mtime_ns=1)}).text()
    )
    assert set(Store(tmp_path).files) == {sha256(f"{number}") for number in range(1, NEIGHBOURS + 1)}


@pytest.mark.parametrize("overlay", [False, True])
def test_a_link_that_leads_out_of_a_source_is_named(tree: Path, snapshots: Path, tmp_path: Path, overlay: bool) -> None:
    (tmp_path / "id_ed25519").write_text("private")
    (tree / "verl" / "key.py").symlink_to(tmp_path / "id_ed25519")
    with pytest.raises(StagingError) as refused:
        Overlay.of(str(tree), "mine") if overlay else source_of(str(tree), snapshots)
    there = (
        f"{tree}/verl/key.py: leads out of {tree}, to {tmp_path}/id_ed25519. Replace it by a copy of its destination"
    )
    assert str(refused.value) == f"{there}, or remove it."


def test_a_package_that_is_a_link_out_of_the_source_is_refused(tree: Path, snapshots: Path, tmp_path: Path) -> None:
    (tree / "recipe").rename(tmp_path / "aside")
    (tree / "recipe").symlink_to(tmp_path / "aside")
    with pytest.raises(StagingError, match="leads out of"):
        source_of(str(tree), snapshots)


def test_the_version_is_not_read_through_a_link_that_leads_out(tree: Path, snapshots: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("private")
    (tree / "verl" / "version" / "version").unlink()
    (tree / "verl" / "version" / "version").symlink_to(tmp_path / "secret")
    with pytest.raises(StagingError, match="leads out of"):
        source_of(str(tree), snapshots)


@pytest.mark.parametrize("form", ["FIFO", "socket", "device"])
def test_a_special_file_in_a_source_is_an_error(tree: Path, snapshots: Path, form: str) -> None:
    special = tree / "verl" / "special"
    if form == "device":
        special.symlink_to("/dev/zero")
    else:
        put_in_place(form, special, tree)
    with pytest.raises(StagingError, match=r"verl/special: is a link to a directory, a broken link or a special file"):
        source_of(str(tree), snapshots)


def test_a_file_that_becomes_a_fifo_is_not_opened(tree: Path) -> None:
    file = tree / "verl" / "__init__.py"
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(StagingError, match="special file"):
        open_within(str(file), tree)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_hard_link_to_a_file_of_another_user_is_refused(tree: Path, snapshots: Path, tmp_path: Path) -> None:
    (tmp_path / "roots").write_text("private")
    os.link(tmp_path / "roots", tree / "verl" / "stolen.py")
    os.chown(tree, NOBODY, NOBODY)
    with pytest.raises(StagingError, match=r"stolen\.py: is a hard link to a file of user id 0, who does not own"):
        source_of(str(tree), snapshots)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_path_through_a_link_of_another_user_is_refused(tree: Path, snapshots: Path, tmp_path: Path) -> None:
    for name, destination in (("own", tree), ("theirs", tree), ("nested", tmp_path / "theirs")):
        (tmp_path / name).symlink_to(destination)
    os.chown(tmp_path / "theirs", NOBODY, NOBODY, follow_symlinks=False)
    assert source_of(str(tmp_path / "own"), snapshots).label == str(tree)
    for name in ("theirs", "nested"):
        with pytest.raises(StagingError, match=rf"leads through {tmp_path}/theirs, a link of user id {NOBODY}"):
            source_of(str(tmp_path / name), snapshots)


def test_a_name_that_cannot_be_shown_is_refused(tree: Path, snapshots: Path) -> None:
    (tree / "verl" / "a\x1b[2J.py").touch()
    with pytest.raises(StagingError, match="has characters that cannot be shown"):
        source_of(str(tree), snapshots)


def test_a_sparse_file_is_counted_before_it_is_read(tree: Path, snapshots: Path) -> None:
    with (tree / "verl" / "huge").open("wb") as file:
        file.truncate(8 << 40)
    with pytest.raises(StagingError, match=r"has files of 8\.0 TiB or more; a snapshot has at most 64\.0 GiB"):
        source_of(str(tree), snapshots)


def test_the_size_of_a_source_must_fit(shared_root: Path, snapshots: Path, tree: Path, mine: Path) -> None:
    asked = request(shared_root, source_of(str(tree), snapshots), "mine", [Overlay.of(str(mine), "mine")])
    files = [tree / name for name in TAKEN] + [mine / "main.py", mine / "deep" / "er.py"]
    assert asked.size() == sum(file.stat().st_size for file in files)
