"""Staging once, repairs, check mode, races and removal."""

from __future__ import annotations

import json
import os
import random
import re
import socket
import time
from pathlib import Path
from typing import Any

import pytest
from staging_store import (
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

from argus.archive.archive import Archive
from argus.archive.status import ENDED, JobState
from argus.staging.lock import Progress, lock_file, locked
from argus.staging.manifest import Staged, Status, list_files
from argus.staging.options import (
    StagingError,
    check_name,
    check_shared_root,
)
from argus.staging.store import BuildRequest, Built, programs, remove, used_by, users


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


@pytest.mark.parametrize("form", ["directory", "file", "dangling link", "another kind"])
def test_a_target_that_was_not_staged_is_never_changed(tmp_path: Path, form: str) -> None:
    target = tmp_path / "tiny"
    if form == "directory":
        target.mkdir()
    elif form == "file":
        target.write_text("mine")
    elif form == "dangling link":
        target.symlink_to(tmp_path / "nowhere")
    else:
        stage(asked(target))
    before, kind = everything(tmp_path), "model" if form == "another kind" else "rl_dataset"
    what = "is of kind rl_dataset, not model" if form == "another kind" else "exists, but was not staged"
    for check in (False, True):
        for work in (
            lambda: stage(BuildRequest(kind, "tiny", target, no_build), check=check, repair=True),  # noqa: B023
            lambda: remove(target.parent, kind, "tiny", target, check=check),  # noqa: B023
        ):
            with pytest.raises(StagingError, match=what):
                work()
    assert everything(tmp_path) == before


@pytest.mark.parametrize("error", [ValueError("bad row"), KeyboardInterrupt()])
def test_a_build_that_fails_leaves_nothing(tmp_path: Path, error: BaseException) -> None:
    def fail(directory: Path, progress: Progress) -> Built:
        build(directory, progress)
        raise error

    with pytest.raises(type(error)):
        stage(asked(tmp_path / "tiny", fail, read_only=True))
    assert list(tmp_path.iterdir()) == []


def test_a_build_killed_at_any_moment_can_be_repeated(tmp_path: Path) -> None:
    names = [f"{part}/{number}" for part in "abc" for number in range(15)]

    def slow(directory: Path, progress: Progress) -> Built:
        for name in names:
            (directory / name).parent.mkdir(exist_ok=True)
            (directory / name).write_text(name * 100)
            time.sleep(0.001)
        return Built()

    def check_whole(target: Path) -> None:
        manifest = manifest_json(target)
        assert sorted(manifest["files"]) == sorted(names)
        assert problems(target, full=True) == {}

    target = tmp_path / "disturbed" / "tiny"
    started = time.monotonic()
    stage(asked(tmp_path / "undisturbed" / "tiny", slow))
    seconds, finished = time.monotonic() - started, 0
    for moment in range(6):
        with process(lambda: stage(asked(target, slow, read_only=True))) as child:
            child.join(seconds * (moment + random.random()) / 5)  # noqa: S311
            child.kill()
            child.join()
        if os.path.lexists(target):
            finished += 1
            check_whole(target)
            assert stage(asked(target, no_build)).status == Status.EXISTS
            assert siblings(target) == ["tiny"]
            remove(target.parent, "rl_dataset", "tiny", target)
    assert finished < 6
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


def test_hidden_files_of_other_names_and_running_builds_stay(tmp_path: Path) -> None:
    target, leftover = tmp_path / "tiny", ".tiny.staging-0123abcd"
    others = [
        ".snapshot",
        ".tiny.staging-mine",
        f"{leftover}.old",
        ".tiny2.staging-0123abcd",
        f"{leftover}{leftover[5:]}",
    ]
    for name in others:
        (tmp_path / name).mkdir()
    stage(asked(target))
    assert siblings(target) == sorted([*others, "tiny"])

    def hold() -> None:
        with locked(target):
            (tmp_path / leftover).mkdir()
            time.sleep(60)

    with process(hold):
        until((tmp_path / leftover).exists)
        assert stage(asked(target, no_build)).status == Status.EXISTS
        assert siblings(target) == sorted([*others, "tiny", leftover, ".tiny.lock"])


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


def test_a_repair_changes_neither_added_files_nor_what_was_staged(tiny: Path) -> None:
    def other(directory: Path, progress: Progress) -> Built:
        build(directory, progress)
        (directory / "train.parquet").write_text("new rows")
        return Built()

    (tiny / "mine").write_text("precious")
    (tiny / "train.parquet").unlink()
    for check in (False, True):
        with pytest.raises(StagingError, match=r"mine is not in the manifest\. Move the added files away"):
            stage(asked(tiny, no_build), repair=True, check=check)
    (tiny / "mine").unlink()
    with pytest.raises(StagingError, match=r"cannot be repaired: its source has other content now \(train\.parquet"):
        stage(asked(tiny, other), repair=True)
    assert siblings(tiny) == ["tiny"] and not (tiny / "train.parquet").exists()


def test_check_mode_returns_what_would_be_done_and_changes_nothing(tmp_path: Path) -> None:
    target = tmp_path / "datasets" / "tiny"
    assert stage(asked(target, no_build), check=True) == Staged("rl_dataset", "tiny", str(target), Status.STAGED)
    for check in (False, True):
        with pytest.raises(StagingError, match=r"has [0-9.]+ .iB free, but 4194304\.0 TiB are needed"):
            stage(asked(target, no_build, size=lambda: 2**62), check=check)
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
    assert removed == Staged("rl_dataset", "tiny", str(target), Status.REMOVED) and removed.changed
    again = remove(target.parent, "rl_dataset", "tiny", target)
    assert (again.status, again.changed) == (Status.ABSENT, False)
    assert list(tmp_path.iterdir()) == []


def test_places_and_names(tmp_path: Path) -> None:
    assert check_shared_root(tmp_path) == tmp_path
    with pytest.raises(StagingError, match="is not a directory here"):
        check_shared_root(tmp_path / "not-mounted")
    assert check_name("datasets", "a" * 63) == "a" * 63
    for name in ("", ".hidden", "..", "a/b", "a b", "Tiny", "tiny\n", "a" * 64):
        with pytest.raises(StagingError, match=r"(?s)^datasets: the name .* is not allowed"):
            check_name("datasets", name)


# --- Which jobs use what is staged ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "used"),
    [
        (
            {"code_path": "mine", "model": "Qwen", "dataset": "gsm8k"},
            ["common/code/verl/mine", "common/models/Qwen", "datasets/gsm8k"],
        ),
        # Nodes may see the shared root elsewhere; something in a target counts.
        (
            {"shared_root": "/srv/verl/", "model": "/srv/verl/common/models/Q/step-1"},
            ["common/models/Q", "common/models/Q/step-1"],
        ),
        ({"env_vars": {"RUBRIC": "/private/common/models/rubric.v2/rules.json"}}, ["common/models/rubric.v2"]),
        (
            {"shared_root": "/srv", "trainer_overrides": ["a=['/srv/datasets/a/b.parquet','/srv/datasets/c/d']"]},
            ["datasets/a", "datasets/c"],
        ),
        ({"trainer_overrides": {"model.path": "/elsewhere/common/models/judge"}, "code_path": None}, []),
    ],
)
def test_what_a_job_uses_until_it_has_ended(tmp_path: Path, spec: dict[str, Any], used: list[str]) -> None:
    assert used_by(tmp_path) == {}
    archive = Archive(tmp_path / "jobs" / "a")
    archive.reserve()
    (tmp_path / "jobs" / "of-nobody").mkdir()
    Archive(tmp_path / "jobs" / "b").reserve()
    Archive(tmp_path / "jobs" / "b").write_text("config/job_spec.json", "{")
    # From its submission on.
    archive.write_json("config/job_spec.json", spec)
    for state in (None, JobState.RUNNING):
        if state:
            archive.set_status(state)
        assert {str(path): jobs for path, jobs in used_by(tmp_path).items()} == {path: ["a"] for path in used}
    assert users(tmp_path, tmp_path / "common/models/Q") == (["a"] if "Q/" in str(spec) else [])
    for state in ENDED:
        archive.set_status(state)
        assert used_by(tmp_path) == {}


def test_versions_of_the_program_that_jobs_need(tmp_path: Path) -> None:
    needed = "argus-0123456789ab.zip"
    others = [("SUCCEEDED", "argus-ffffffffffff.zip"), ("RUNNING", "../../etc/passwd"), ("RUNNING", None)]
    for number, (state, program) in enumerate([("RUNNING", needed), ("QUEUED", needed), *others]):
        config = tmp_path / "jobs" / f"sft-{number}" / "config"
        config.mkdir(parents=True)
        (config.parent / "status.json").write_text(json.dumps({"state": state}))
        (config / "argus.json").write_text(json.dumps({"program": program}))
    assert programs(tmp_path) == [needed]
