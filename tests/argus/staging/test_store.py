"""Staging once, repairs, check mode, races and removal."""

from __future__ import annotations

import os
import random
import re
import socket
import time
from pathlib import Path

import pytest
from staging_store import (
    MIB,
    as_nobody,
    asked,
    build,
    everything,
    no_build,
    process,
    sha256,
    siblings,
    until,
)
from staging_tools import manifest_json, problems, stage

from argus.staging.lock import Progress, lock_file, locked
from argus.staging.manifest import Staged, Status, list_files
from argus.staging.options import (
    StagingError,
    check_name,
    check_shared_root,
)
from argus.staging.store import BuildRequest, Built, remove


def test_a_directory_is_staged_once_with_a_manifest_of_its_files(tmp_path: Path) -> None:
    target = tmp_path / "datasets" / "tiny"
    staged = stage(asked(target))
    assert staged == Staged("rl_dataset", "tiny", str(target), Status.STAGED)
    assert staged.changed
    manifest = manifest_json(target)
    assert manifest is not None
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", manifest.pop("staged_at"))
    assert manifest == {
        "kind": "rl_dataset",
        "name": "tiny",
        "source": "here",
        "staged_on": socket.gethostname(),
        "bytes": 4,
        "files": {
            "more/val.parquet": {
                "size": 0,
                "mtime_ns": (target / "more" / "val.parquet").stat().st_mtime_ns,
                "sha256": sha256(""),
            },
            "train.parquet": {
                "size": 4,
                "mtime_ns": (target / "train.parquet").stat().st_mtime_ns,
                "sha256": sha256("rows"),
            },
        },
    }
    again = stage(asked(target, no_build))
    assert again.status == Status.EXISTS
    assert not again.changed
    assert siblings(target) == ["tiny"]


@pytest.mark.parametrize("form", ["directory", "file", "dangling link"])
def test_a_target_that_was_not_staged_is_never_changed(tmp_path: Path, form: str) -> None:
    target = tmp_path / "tiny"
    if form == "directory":
        target.mkdir()
    elif form == "file":
        target.write_text("mine")
    else:
        target.symlink_to(tmp_path / "nowhere")
    with pytest.raises(StagingError, match=r"tiny: exists, but was not staged.*Choose another name"):
        stage(asked(target, no_build), repair=True)
    with pytest.raises(StagingError, match=r"tiny: exists, but was not staged"):
        remove(target.parent, "rl_dataset", "tiny", target)
    assert os.path.lexists(target)


def test_one_name_is_not_two_kinds(tiny: Path) -> None:
    for check in (False, True):
        with pytest.raises(StagingError, match=r"tiny: is of kind rl_dataset, not model\. Choose another name"):
            stage(BuildRequest("model", "tiny", tiny, no_build), check=check, repair=True)


@pytest.mark.parametrize("error", [ValueError("bad row"), KeyboardInterrupt()])
def test_a_build_that_fails_leaves_nothing(tmp_path: Path, error: BaseException) -> None:
    def fail(directory: Path, progress: Progress) -> Built:
        build(directory, progress)
        raise error

    with pytest.raises(type(error)):
        stage(asked(tmp_path / "tiny", fail, read_only=True))
    assert list(tmp_path.iterdir()) == []


def test_a_build_killed_at_any_moment_can_be_repeated(tmp_path: Path) -> None:
    names = [f"{part}/{number}" for part in "abc" for number in range(40)]

    def slow(directory: Path, progress: Progress) -> Built:
        for name in names:
            (directory / name).parent.mkdir(exist_ok=True)
            (directory / name).write_text(name * 100)
            progress.add(len(name) * 100)
            time.sleep(0.001)
        return Built()

    def check_whole(target: Path) -> None:
        manifest = manifest_json(target)
        assert sorted(manifest["files"]) == sorted(names)
        assert problems(target, full=True) == {}

    started = time.monotonic()
    stage(asked(tmp_path / "undisturbed" / "tiny", slow))
    seconds = time.monotonic() - started
    target = tmp_path / "disturbed" / "tiny"
    finished = 0
    for moment in range(10):
        with process(lambda: stage(asked(target, slow, read_only=True))) as child:
            child.join(seconds * (moment + random.random()) / 9)  # noqa: S311
            child.kill()
            child.join()
        if os.path.lexists(target):
            finished += 1
            check_whole(target)
            assert stage(asked(target, no_build)).status == Status.EXISTS
            assert siblings(target) == ["tiny"]
            remove(target.parent, "rl_dataset", "tiny", target)
    assert finished < 10
    assert stage(asked(target, slow, read_only=True)).status == Status.STAGED
    check_whole(target)
    assert siblings(target) == ["tiny"]


def test_leftovers_of_a_process_killed_at_its_end_are_removed_by_the_next_run(tiny: Path) -> None:
    # Between its rename and the end of its lock; or a repair, or a removal, that had nothing left but tidying up.
    leftover = tiny.with_name(".tiny.staging-0123abcd")
    for result in (Status.EXISTS, Status.ABSENT):
        leftover.mkdir()
        (leftover / "half").write_text("half")
        lock_file(tiny).touch()
        before = everything(tiny.parent)
        if result == Status.EXISTS:
            assert stage(asked(tiny, no_build), check=True).status == Status.EXISTS
            assert everything(tiny.parent) == before
            assert stage(asked(tiny, no_build)).status == Status.EXISTS
            assert siblings(tiny) == ["tiny"]
            remove(tiny.parent, "rl_dataset", "tiny", tiny)
        else:
            assert remove(tiny.parent, "rl_dataset", "tiny", tiny, check=True).status == Status.ABSENT
            assert everything(tiny.parent) == before
            assert remove(tiny.parent, "rl_dataset", "tiny", tiny).status == Status.ABSENT
            assert siblings(tiny) == []


def test_hidden_files_of_other_names_stay(tmp_path: Path) -> None:
    others = [".snapshot", ".tiny.staging-mine", ".tiny.staging-0123abcd.old", ".tiny2.staging-0123abcd", ".x.lock"]
    others.append(".tiny.staging-0123abcd.staging-0123abcd")
    for name in others:
        (tmp_path / name).mkdir()
    stage(asked(tmp_path / "tiny"))
    assert siblings(tmp_path / "tiny") == sorted([*others, "tiny"])


def test_a_directory_of_another_user_is_named(nobodys: Path) -> None:
    nobodys.chmod(0o555)
    error = as_nobody(lambda: stage(asked(nobodys / "tiny")).status)
    assert re.search(r"tiny: cannot be staged: .*Permission denied", str(error))
    assert list(nobodys.iterdir()) == []


def test_a_disk_that_becomes_full_leaves_nothing_and_after_making_room_it_goes_on(small_disk: Path) -> None:
    target = small_disk / "tiny"
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(10 * MIB))

    def big(directory: Path, _progress: Progress) -> Built:
        for number in range(8):
            (directory / str(number)).write_bytes(bytes([number]) * MIB)
        return Built()

    with pytest.raises(StagingError, match=r"tiny: cannot be staged: .*No space left.*has space"):
        stage(asked(target, big))
    assert [name for name in siblings(target) if name != "lost+found"] == ["ballast"]
    ballast.unlink()
    assert stage(asked(target, big)).status == Status.STAGED
    assert problems(target, full=True) == {}
    assert [name for name in siblings(target) if name != "lost+found"] == ["tiny"]


@pytest.mark.parametrize("check", [False, True])
def test_a_build_without_enough_space_does_not_start(tmp_path: Path, check: bool) -> None:
    target = tmp_path / "datasets" / "tiny"
    with pytest.raises(StagingError, match=r"has [0-9.]+ .iB free, but 4194304\.0 TiB are needed\. Free some space"):
        stage(asked(target, no_build, size=lambda: 2**62), check=check)
    assert list(tmp_path.iterdir()) == []


def test_a_repair_restores_changed_and_missing_files(tmp_path: Path) -> None:
    target = tmp_path / "tiny"
    stage(asked(target, read_only=True))
    before = list_files(target)
    for path in (target, target / "more", target / "train.parquet"):
        path.chmod(0o755)
    (target / "train.parquet").write_text("ROWS")
    (target / "more" / "val.parquet").unlink()
    (target / "more").rmdir()
    target.chmod(0o555)
    repaired = stage(asked(target, read_only=True), repair=True)
    assert repaired.status == Status.REPAIRED
    assert repaired.changed
    assert repaired.notes == ("more/val.parquet is missing", "train.parquet has other content")
    # As in the manifest, down to the times.
    assert list_files(target) == before
    assert {path.stat().st_mode & 0o222 for path in (target, *target.rglob("*"))} == {0}
    assert siblings(target) == ["tiny"]
    assert stage(asked(target, no_build), repair=True).status == Status.EXISTS


def test_a_repair_does_not_change_added_files(tiny: Path) -> None:
    (tiny / "mine").write_text("precious")
    (tiny / "train.parquet").unlink()
    for check in (False, True):
        with pytest.raises(StagingError, match=r"mine is not in the manifest\. Move the added files away"):
            stage(asked(tiny, no_build), repair=True, check=check)
    assert (tiny / "mine").read_text() == "precious"
    assert not (tiny / "train.parquet").exists()


def test_a_repair_from_a_source_that_has_changed_is_refused(tiny: Path) -> None:
    def other(directory: Path, progress: Progress) -> Built:
        build(directory, progress)
        (directory / "train.parquet").write_text("new rows")
        return Built()

    (tiny / "train.parquet").unlink()
    with pytest.raises(StagingError, match=r"cannot be repaired: its source has other content now \(train\.parquet"):
        stage(asked(tiny, other), repair=True)
    assert siblings(tiny) == ["tiny"]
    assert not (tiny / "train.parquet").exists()


def test_check_mode_returns_what_would_be_done_and_changes_nothing(tmp_path: Path) -> None:
    target = tmp_path / "datasets" / "tiny"
    assert stage(asked(target, no_build), check=True) == Staged("rl_dataset", "tiny", str(target), Status.STAGED)
    assert list(tmp_path.iterdir()) == []

    stage(asked(target, read_only=True))
    before = everything(tmp_path)
    assert stage(asked(target, no_build), check=True).status == Status.EXISTS
    assert remove(target.parent, "rl_dataset", "tiny", target, check=True).status == Status.REMOVED
    assert everything(tmp_path) == before

    target.chmod(0o755)
    (target / "train.parquet").unlink()
    before = everything(tmp_path)
    would = stage(asked(target, no_build), check=True, repair=True)
    assert (would.status, would.notes) == (Status.REPAIRED, ("train.parquet is missing",))
    assert everything(tmp_path) == before


def test_two_processes_at_once_build_once(tmp_path: Path) -> None:
    target = tmp_path / "datasets" / "tiny"
    built, second_is_there = tmp_path / "built", tmp_path / "second-is-there"

    def counted(directory: Path, progress: Progress) -> Built:
        with built.open("a") as file:
            file.write("x")
        until(second_is_there.exists)
        time.sleep(0.3)
        return build(directory, progress)

    def first() -> None:
        (tmp_path / "first").write_text(stage(asked(target, counted)).status)

    def second() -> None:
        until(built.exists)
        second_is_there.touch()
        (tmp_path / "second").write_text(stage(asked(target, counted)).status)

    with process(first) as one, process(second) as other:
        one.join(60)
        other.join(60)
    assert (tmp_path / "first").read_text() == Status.STAGED
    assert (tmp_path / "second").read_text() == Status.EXISTS
    assert built.read_text() == "x"
    assert siblings(target) == ["tiny"]


def test_a_running_build_is_not_tidied_up(tiny: Path) -> None:
    leftover = tiny.with_name(".tiny.staging-0123abcd")

    def hold() -> None:
        with locked(tiny):
            leftover.mkdir()
            time.sleep(60)

    with process(hold):
        until(leftover.exists)
        assert stage(asked(tiny, no_build)).status == Status.EXISTS
        assert siblings(tiny) == [".tiny.lock", ".tiny.staging-0123abcd", "tiny"]


@pytest.mark.parametrize("repair", [False, True])
def test_a_target_that_changes_during_the_wait_is_examined_again(tmp_path: Path, repair: bool) -> None:
    target, held, waits = tmp_path / "tiny", tmp_path / "held", tmp_path / "waits"
    # With a repair there is something to put right; without one there is nothing yet.
    if repair:
        stage(asked(target))
        (target / "more" / "val.parquet").unlink()

    def other() -> None:
        with locked(target):
            held.touch()
            until(waits.exists)
            time.sleep(0.2)
            if not repair:
                stage(asked(tmp_path / "elsewhere"))
                (tmp_path / "elsewhere").rename(target)
            (target / "train.parquet").write_text("ROWS")
            (target / "mine").write_text("precious")

    with process(other):
        until(held.exists)
        request = asked(target, no_build, size=lambda: waits.touch() or 0, differs=lambda manifest: waits.touch() or "")
        with pytest.raises(StagingError, match=r"train\.parquet has other content.*mine is not in the manifest"):
            stage(request, repair=repair)
    assert (target / "mine").read_text() == "precious"
    assert (target / "train.parquet").read_text() == "ROWS"


def test_an_unused_target_is_removed(tmp_path: Path) -> None:
    target = tmp_path / "tiny"
    stage(asked(target, read_only=True))
    removed = remove(target.parent, "rl_dataset", "tiny", target)
    assert removed == Staged("rl_dataset", "tiny", str(target), Status.REMOVED)
    assert removed.changed
    assert list(tmp_path.iterdir()) == []
    again = remove(target.parent, "rl_dataset", "tiny", target)
    assert (again.status, again.changed) == (Status.ABSENT, False)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_shared_root_is_not_created(tmp_path: Path) -> None:
    assert check_shared_root(tmp_path) == tmp_path
    with pytest.raises(StagingError, match=r"is not a directory here\. Mount or create it first"):
        check_shared_root(tmp_path / "not-mounted")


@pytest.mark.parametrize("name", ["", ".hidden", "..", "a/b", "a b", "Tiny", "tiny\n", "a" * 64])
def test_bad_names(name: str) -> None:
    with pytest.raises(StagingError, match=r"(?s)^datasets: the name .* is not allowed"):
        check_name("datasets", name)
