"""Staging once, repairs, check mode, locks, races, removal, and the jobs that use items."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import random
import re
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import IO, Any

import pytest
from staging_store import build, build_of, everything, faults, manifest_json, no_build, process, siblings, stage, until

from argus.archive.archive import Archive
from argus.archive.status import ENDED, JobState
from argus.staging import lock as staging_lock
from argus.staging.files import THREAD_COUNT
from argus.staging.lock import Progress, hold_lock, is_held, lock_file, read_progress
from argus.staging.manifest import StageResult, Status, list_files
from argus.staging.options import StagingError
from argus.staging.store import BuildRequest, BuildResult, remove
from argus.staging.usage import jobs_by_path, jobs_using, programs_in_use


def test_a_directory_is_staged_once_with_a_manifest_of_its_files(tmp_path: Path) -> None:
    target = tmp_path / "datasets" / "tiny"
    staged = stage(build_of(target))
    assert (staged, staged.changed) == (StageResult("rl_dataset", "tiny", str(target), Status.STAGED), True)
    manifest = manifest_json(target)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", manifest.pop("staged_at"))
    files = {
        name: {"size": len(text), "mtime_ns": (target / name).stat().st_mtime_ns, "sha256": sha256(text).hexdigest()}
        for name, text in (("more/val.parquet", b""), ("train.parquet", b"rows"))
    }
    origin = {"kind": "rl_dataset", "name": "tiny", "source": "here", "staged_on": socket.gethostname()}
    assert manifest == {**origin, "bytes": 4, "files": files}
    again = stage(build_of(target, no_build))
    assert (again.status, again.changed, siblings(target)) == (Status.EXISTS, False, ["tiny"])


@pytest.mark.parametrize("form", ["directory", "dangling link", "another kind"])
def test_a_target_that_was_not_staged_is_never_changed(tmp_path: Path, form: str) -> None:
    target = tmp_path / "tiny"
    if form == "directory":
        target.mkdir()
    elif form == "dangling link":
        target.symlink_to(tmp_path / "nowhere")
    else:
        stage(build_of(target))
    before, kind = everything(tmp_path), "model" if form == "another kind" else "rl_dataset"
    for check in (False, True):
        for work in (
            lambda: stage(BuildRequest(kind, "tiny", target, no_build), check=check, repair=True),  # noqa: B023
            lambda: remove(target.parent, kind, "tiny", target, check=check),  # noqa: B023
        ):
            with pytest.raises(StagingError):
                work()
    assert everything(tmp_path) == before


@pytest.mark.parametrize("error", [ValueError("bad row"), KeyboardInterrupt()])
def test_a_build_that_fails_leaves_nothing(tmp_path: Path, error: BaseException) -> None:
    def fail(directory: Path, progress: Progress) -> BuildResult:
        build(directory, progress)
        raise error

    with pytest.raises(type(error)):
        stage(build_of(tmp_path / "tiny", fail, read_only=True))
    assert list(tmp_path.iterdir()) == []


def test_a_build_killed_at_any_moment_can_be_repeated(tmp_path: Path) -> None:
    names = [f"{part}/{number}" for part in "abc" for number in range(15)]

    def slow(directory: Path, progress: Progress) -> BuildResult:
        for name in names:
            (directory / name).parent.mkdir(exist_ok=True)
            (directory / name).write_text(name * 100)
            time.sleep(0.001)
        return BuildResult()

    def check_whole(target: Path) -> None:
        manifest = manifest_json(target)
        assert sorted(manifest["files"]) == sorted(names)
        assert faults(target, full=True) == {}

    target = tmp_path / "disturbed" / "tiny"
    started = time.monotonic()
    stage(build_of(tmp_path / "undisturbed" / "tiny", slow))
    seconds, finished = time.monotonic() - started, 0
    for moment in range(6):
        with process(lambda: stage(build_of(target, slow, read_only=True))) as child:
            child.join(seconds * (moment + random.random()) / 5)  # noqa: S311
            child.kill()
            child.join()
        if os.path.lexists(target):
            finished += 1
            check_whole(target)
            assert stage(build_of(target, no_build)).status == Status.EXISTS
            assert siblings(target) == ["tiny"]
            remove(target.parent, "rl_dataset", "tiny", target)
    assert finished < 6
    assert stage(build_of(target, slow, read_only=True)).status == Status.STAGED
    check_whole(target)
    assert siblings(target) == ["tiny"]


def test_leftovers_of_a_process_killed_at_its_end_are_removed_by_the_next_run(tiny: Path) -> None:
    # Between its rename and the end of its lock; or a repair, or a removal, that had nothing left but tidying up.
    def leave() -> dict[str, tuple[int, int]]:
        leftover = tiny.with_name(".tiny.staging-0123abcd")
        leftover.mkdir()
        (leftover / "half").write_text("half")
        lock_file(tiny).touch()
        return everything(tiny.parent)

    before = leave()
    assert stage(build_of(tiny, no_build), check=True).status == Status.EXISTS
    assert everything(tiny.parent) == before
    assert stage(build_of(tiny, no_build)).status == Status.EXISTS
    assert siblings(tiny) == ["tiny"]
    assert remove(tiny.parent, "rl_dataset", "tiny", tiny).changed
    before = leave()
    assert remove(tiny.parent, "rl_dataset", "tiny", tiny, check=True).status == Status.ABSENT
    assert everything(tiny.parent) == before
    absent = remove(tiny.parent, "rl_dataset", "tiny", tiny)
    assert (absent.status, absent.changed, siblings(tiny)) == (Status.ABSENT, False, [])


def test_hidden_files_of_other_names_and_running_builds_stay(tmp_path: Path) -> None:
    target, leftover = tmp_path / "tiny", ".tiny.staging-0123abcd"
    others = [".snapshot", ".tiny.staging-mine", f"{leftover}.old", ".tiny2.staging-0123abcd"]
    for name in others:
        (tmp_path / name).mkdir()
    stage(build_of(target))
    assert siblings(target) == sorted([*others, "tiny"])

    def hold() -> None:
        with hold_lock(target):
            (tmp_path / leftover).mkdir()
            time.sleep(60)

    with process(hold):
        until((tmp_path / leftover).exists)
        assert stage(build_of(target, no_build)).status == Status.EXISTS
        assert siblings(target) == sorted([*others, "tiny", leftover, ".tiny.lock"])


def test_a_repair_restores_changed_and_missing_files(tmp_path: Path) -> None:
    target = tmp_path / "tiny"
    stage(build_of(target, read_only=True))
    before = list_files(target)
    for path in (target, target / "more", target / "train.parquet"):
        path.chmod(0o755)
    (target / "train.parquet").write_text("ROWS")
    (target / "more" / "val.parquet").unlink()
    (target / "more").rmdir()
    target.chmod(0o555)
    repaired = stage(build_of(target, read_only=True), repair=True)
    assert (repaired.status, repaired.changed, len(repaired.notes)) == (Status.REPAIRED, True, 2)
    # As in the manifest, down to the times.
    assert list_files(target) == before
    assert {path.stat().st_mode & 0o222 for path in (target, *target.rglob("*"))} == {0}
    assert siblings(target) == ["tiny"]
    assert stage(build_of(target, no_build), repair=True).status == Status.EXISTS


def test_a_repair_changes_neither_added_files_nor_what_was_staged(tiny: Path) -> None:
    def other(directory: Path, progress: Progress) -> BuildResult:
        build(directory, progress)
        (directory / "train.parquet").write_text("new rows")
        return BuildResult()

    (tiny / "mine").write_text("precious")
    (tiny / "train.parquet").unlink()
    for check in (False, True):
        with pytest.raises(StagingError, match=r"mine is not in the manifest\. Move the added files away"):
            stage(build_of(tiny, no_build), repair=True, check=check)
    (tiny / "mine").unlink()
    with pytest.raises(StagingError, match=r"cannot be repaired: its source has other content now \(train\.parquet"):
        stage(build_of(tiny, other), repair=True)
    assert siblings(tiny) == ["tiny"] and not (tiny / "train.parquet").exists()


def test_check_mode_returns_what_would_be_done_and_changes_nothing(tmp_path: Path) -> None:
    target = tmp_path / "datasets" / "tiny"
    expected = StageResult("rl_dataset", "tiny", str(target), Status.STAGED)
    assert stage(build_of(target, no_build), check=True) == expected
    for check in (False, True):
        with pytest.raises(StagingError, match=r"4194304\.0 TiB"):
            stage(build_of(target, no_build, size=lambda: 2**62), check=check)
    assert list(tmp_path.iterdir()) == []
    stage(build_of(target, read_only=True))
    target.chmod(0o755)
    (target / "train.parquet").unlink()
    before = everything(tmp_path)
    would = stage(build_of(target, no_build), check=True, repair=True)
    assert (would.status, would.notes) == (Status.REPAIRED, ("train.parquet is missing",))
    assert remove(target.parent, "rl_dataset", "tiny", target, check=True).status == Status.REMOVED
    assert everything(tmp_path) == before


@pytest.mark.parametrize("repair", [False, True])
def test_a_target_that_changes_during_the_wait_is_examined_again(tmp_path: Path, repair: bool) -> None:
    target, held, waits = tmp_path / "tiny", tmp_path / "held", tmp_path / "waits"
    # With a repair there is something to put right; without one there is nothing yet.
    if repair:
        stage(build_of(target))
        (target / "more" / "val.parquet").unlink()

    def other() -> None:
        with hold_lock(target):
            held.touch()
            until(waits.exists)
            time.sleep(0.2)
            if not repair:
                stage(build_of(tmp_path / "elsewhere"))
                (tmp_path / "elsewhere").rename(target)
            (target / "train.parquet").write_text("ROWS")
            (target / "mine").write_text("precious")

    with process(other):
        until(held.exists)
        request = build_of(target, no_build, size=lambda: waits.touch() or 0, mismatch=lambda _: waits.touch() or "")
        with pytest.raises(StagingError, match=r"train\.parquet has other content.*mine is not in the manifest"):
            stage(request, repair=repair)
    assert (target / "mine").read_text() == "precious"
    assert (target / "train.parquet").read_text() == "ROWS"


# The lock of a target, and the progress of its holder.


def test_a_lock_is_held_until_its_holder_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "tiny"

    def hold() -> None:
        with hold_lock(target):
            (tmp_path / "held").touch()
            time.sleep(60)

    assert not is_held(target)
    with process(hold) as holder:
        until((tmp_path / "held").exists)
        assert is_held(target)
        with monkeypatch.context() as patched:
            patched.setattr(staging_lock, "HEARTBEAT_TIMEOUT_SECONDS", 0.3)
            message = rf"tiny: is being staged by {socket.gethostname()}, process {holder.pid}, which has sent no"
            with pytest.raises(StagingError, match=message):
                stage(build_of(target, no_build))
        holder.kill()
        holder.join()
    assert lock_file(target).exists() and not is_held(target)
    assert stage(build_of(target)).status == Status.STAGED
    assert siblings(target) == ["held", "tiny"]


def test_a_lock_that_its_holder_removes_at_that_moment_is_taken_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, real = tmp_path / "tiny", fcntl.flock
    locks = []

    def flock(lock: IO[str], how: int) -> None:
        """As if the holder ended after the waiting process opened the file and before it locks it."""
        if not locks:
            lock_file(target).unlink()
        locks.append(lock)
        real(lock, how)

    monkeypatch.setattr(fcntl, "flock", flock)
    with hold_lock(target):
        assert len(locks) == 2
        # The file that others see is the locked one.
        with lock_file(target).open() as other, pytest.raises(BlockingIOError):
            real(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert siblings(target) == []


def test_progress_is_written_as_long_as_its_holder_lives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("argus.staging.lock.PROGRESS_INTERVAL_SECONDS", 0.01)
    file = tmp_path / "progress"
    file.touch()
    with file.open("r+") as lock:
        progress = Progress(lock.fileno())
        with progress.write_heartbeats():
            progress.begin("copying", 10**6)
            with ThreadPoolExecutor(THREAD_COUNT) as pool:
                list(pool.map(progress.add, [1] * 1000))
            until(lambda: json.loads(file.read_text() or "{}").get("done") == 1000)
            before = json.loads(file.read_text())["time"]
            # Also while there is nothing to count.
            until(lambda: json.loads(file.read_text() or "{}").get("time", 0) > before)
            # What comes next is shorter.
            progress.begin("x")
            assert json.loads(file.read_text())["done"] == 0


def test_an_error_other_than_a_held_lock_is_raised_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as ENOLCK of a file system without locks, which waiting does not cure."""
    tries = []

    def flock(lock: IO[str], operation: int) -> None:
        tries.append(operation)
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(StagingError, match=r"tiny: cannot be staged: .*No locks available.* has space and locks"):
        stage(build_of(tmp_path / "tiny", no_build))
    assert len(tries) == 1


@pytest.mark.parametrize("call", ["open", "fstat"])
def test_a_lock_that_another_machine_removes_while_it_is_opened_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """NFS says so at any use of the file."""
    real, tries = getattr(os, call), []

    def stale(file: str | int | Path, *arguments: Any) -> Any:
        path = Path(f"/proc/self/fd/{file}").readlink() if isinstance(file, int) else Path(file)
        if path == lock_file(tmp_path / "tiny"):
            tries.append(file)
            if len(tries) == 1:
                raise OSError(errno.ESTALE, "Stale file handle")
        return real(file, *arguments)

    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    with monkeypatch.context() as patched:
        patched.setattr(os, call, stale)
        patched.setattr(staging_lock, "LOCK_RETRY_INTERVAL_SECONDS", 0.01)
        with hold_lock(tmp_path / "tiny"):
            assert len(tries) > 1
    assert len(list(Path("/proc/self/fd").iterdir())) == descriptors


REPORT = {"host": "head", "pid": 17, "step": "copying", "done": 1, "total": 2, "started_at": 1.0, "time": 2.0}


def test_a_report_that_a_job_has_forged_is_none(tmp_path: Path) -> None:
    forged = [("done", "1"), ("done", -1), ("done", True), ("done", 1 << 70), ("time", float("nan"))]
    forged += [("time", float("inf")), ("started_at", "now"), ("pid", [1]), ("pid", 1.5), ("step", "\x1b[2J")]
    forged += [("host", "\u202ehead"), ("host", "h" * 5000), ("step", "x" * (1 << 20))]
    lock_file(tmp_path / "tiny").write_text(json.dumps(REPORT))
    assert read_progress(tmp_path / "tiny") is not None
    for text in ("[" * 60_000, '{"pid": ' + "9" * 5000 + "}", *(json.dumps({**REPORT, key: it}) for key, it in forged)):
        lock_file(tmp_path / "tiny").write_text(text)
        assert read_progress(tmp_path / "tiny") is None, text[:99]
    assert stage(build_of(tmp_path / "tiny")).status == Status.STAGED


# The items and the versions of the program that jobs use.


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
    assert jobs_by_path(tmp_path) == {}
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
        assert {str(path): jobs for path, jobs in jobs_by_path(tmp_path).items()} == {path: ["a"] for path in used}
    assert jobs_using(tmp_path, tmp_path / "common/models/Q") == (["a"] if "Q/" in str(spec) else [])
    for state in ENDED:
        archive.set_status(state)
        assert jobs_by_path(tmp_path) == {}


def test_versions_of_the_program_that_jobs_need(tmp_path: Path) -> None:
    needed = "argus-0123456789ab.zip"
    others = [("SUCCEEDED", "argus-ffffffffffff.zip"), ("RUNNING", "../../etc/passwd"), ("RUNNING", None)]
    for number, (state, program) in enumerate([("RUNNING", needed), ("QUEUED", needed), *others]):
        config = tmp_path / "jobs" / f"sft-{number}" / "config"
        config.mkdir(parents=True)
        (config.parent / "status.json").write_text(json.dumps({"state": state}))
        (config / "argus.json").write_text(json.dumps({"program": program}))
    assert programs_in_use(tmp_path) == [needed]
