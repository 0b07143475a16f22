"""Real directories: two paths of one directory are two machines that share it, two directories are two that do not."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest
from ansible_collections.argus.verl.plugins.module_utils.network.background import Background
from ansible_collections.argus.verl.plugins.module_utils.storage.locks import contend, hold, release
from ansible_collections.argus.verl.plugins.module_utils.storage.rates import MIB, Rate, read_rate, write_rate
from ansible_collections.argus.verl.plugins.module_utils.storage.trial import (
    PREFIX,
    Seen,
    TrialError,
    file_name,
    look,
    percentile,
    remove,
    trial,
    write,
)

TOKEN = "0123456789abcdef"


@pytest.fixture(params=["disk", "memory"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """On the disk, and on a tmpfs, which knows no O_DIRECT on older kernels."""
    shared = tmp_path if request.param == "disk" else Path(f"/dev/shm/argus-verl-test-{os.getpid()}-{time.time_ns()}")
    shared.mkdir(exist_ok=True)
    yield shared
    remove(shared, TOKEN)
    if request.param == "memory":
        shared.rmdir()


def test_what_one_writes_the_other_sees(root: Path, tmp_path: Path) -> None:
    written = write(root, TOKEN, "gpu-0")
    assert (written.uid, written.seen_uid, written.renamed) == (os.geteuid(), os.geteuid(), True)
    assert 0 < written.sync_ms[0] <= written.sync_ms[1]
    other = tmp_path / "other"
    other.symlink_to(root)
    write(other, TOKEN, "gpu/1")
    seen = look(other, TOKEN, ["gpu-0"], 5)["gpu-0"]
    assert (seen.uid, seen.right) == (os.geteuid(), True)
    assert look(root, TOKEN, ["gpu/1"], 5)["gpu/1"].right
    assert look(root, TOKEN, [], 5) == {}


def test_machines_with_directories_of_their_own_do_not_see_each_other(tmp_path: Path) -> None:
    for host in ("a", "b"):
        (tmp_path / host).mkdir()
        write(tmp_path / host, TOKEN, host)
    seen = look(tmp_path / "a", TOKEN, ["b", "a"], 0)
    assert seen["b"] == Seen(None)
    assert seen["a"].right
    (tmp_path / "none").mkdir()
    assert look(tmp_path / "none", TOKEN, ["a"], 0.3) == {"a": Seen(None)}


def test_file_of_another_content_is_wrong(tmp_path: Path) -> None:
    write(tmp_path, TOKEN, "a")
    with trial(tmp_path, TOKEN) as directory:
        os.unlink("a", dir_fd=directory)
        descriptor = os.open("a", os.O_WRONLY | os.O_CREAT, 0o644, dir_fd=directory)
        os.close(descriptor)
    seen = look(tmp_path, TOKEN, ["a"], 5)["a"]
    assert seen.seconds is not None
    assert not seen.right


def test_links_and_pipes_of_a_job_are_not_followed(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text(f"{TOKEN} a")
    shared = tmp_path / "shared"
    meeting = shared / f"{PREFIX}{TOKEN}"
    meeting.mkdir(parents=True)
    (meeting / "a").symlink_to(secret)
    os.mkfifo(meeting / "b")
    seen = look(shared, TOKEN, ["a", "b"], 5)
    assert not seen["a"].right
    assert not seen["b"].right
    with pytest.raises(FileExistsError):
        write(shared, TOKEN, "a")
    (meeting / f"{file_name('a.together')}.data").symlink_to(secret)
    with pytest.raises(FileExistsError):
        write_rate(shared, TOKEN, "a.together", 1, 0)
    with pytest.raises(OSError, match="symbolic links"):
        read_rate(shared, TOKEN, "a.together", 1)
    (meeting / "lock-flock").symlink_to(secret)
    with pytest.raises(OSError, match="symbolic links"):
        hold(shared, TOKEN, 5)
    remove(shared, TOKEN)
    assert not meeting.exists()
    assert secret.read_text() == f"{TOKEN} a"


def test_directory_that_is_a_link_is_not_entered(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "file").touch()
    (tmp_path / f"{PREFIX}{TOKEN}").symlink_to(elsewhere)
    with pytest.raises(NotADirectoryError):
        write(tmp_path, TOKEN, "a")
    remove(tmp_path, TOKEN)
    assert (elsewhere / "file").exists()


def test_trial_lies_where_the_user_of_nodes_may_write(tmp_path: Path) -> None:
    (tmp_path / "user").mkdir()
    write(tmp_path, TOKEN, "a")
    assert [entry.name for entry in (tmp_path / "user").iterdir()] == [f"{PREFIX}{TOKEN}"]
    assert [entry.name for entry in tmp_path.iterdir()] == ["user"]
    remove(tmp_path, TOKEN)
    assert list((tmp_path / "user").iterdir()) == []
    # A link in the place of the directory is left alone.
    (tmp_path / "user").rmdir()
    (tmp_path / "user").symlink_to("/")
    write(tmp_path, TOKEN, "a")
    assert (tmp_path / f"{PREFIX}{TOKEN}").is_dir()


@pytest.mark.parametrize("token", ["", "..", "a/b", "0123456789abcde", "0123456789ABCDEF", "0" * 65])
def test_token_that_is_none_is_refused(token: str, tmp_path: Path) -> None:
    with pytest.raises(TrialError):
        write(tmp_path, token, "a")
    assert list(tmp_path.iterdir()) == []


def test_trials_that_were_interrupted_are_removed_by_a_later_one(tmp_path: Path) -> None:
    old, new, other = (tmp_path / name for name in (f"{PREFIX}{'a' * 16}", f"{PREFIX}{'b' * 16}", "data"))
    for directory in (old, new, other):
        directory.mkdir()
        (directory / "file").touch()
    for directory in (old, other):
        os.utime(directory, (0, 0))
    remove(tmp_path, TOKEN)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == sorted([new.name, "data"])


def test_file_names_of_hosts() -> None:
    assert file_name("gpu-0_a") == "gpu-0_a"
    assert file_name("../gpu.1") == "%2e%2e%2fgpu%2e1"


@pytest.mark.parametrize(("count", "expected"), [(100, 98), (1, 0), (64, 63), (200, 197)])
def test_percentile(count: int, expected: int) -> None:
    assert percentile(reversed(range(count)), 0.99) == expected


# --- Locks and rates --------------------------------------------------------------------------------------------------


def test_locks_of_another_process_keep_this_one_out(root: Path) -> None:
    """The holder is another process: for the kernel, that is another machine."""
    held = hold(root, TOKEN, 60)
    assert held["held"] == ["flock", "fcntl"]
    assert contend(root, TOKEN) == {"flock": "held", "fcntl": "held"}
    # A second holder gets none.
    second = hold(root, TOKEN, 60)
    assert second["held"] == []
    for each in (second, held):
        process = Background(**each["process"])
        assert release(process)
        os.waitpid(process.pid, 0)
    assert contend(root, TOKEN) == {"flock": "free", "fcntl": "free"}


def test_locks_end_by_themselves(tmp_path: Path) -> None:
    held = hold(tmp_path, TOKEN, 1)
    os.waitpid(held["process"]["pid"], 0)
    assert contend(tmp_path, TOKEN) == {"flock": "free", "fcntl": "free"}


def test_machine_that_does_not_see_the_locks_says_nothing_of_them(tmp_path: Path) -> None:
    write(tmp_path, TOKEN, "a")
    assert contend(tmp_path, TOKEN) == {}


def test_rates(root: Path) -> None:
    written = write_rate(root, TOKEN, "a.alone", 3, 0)
    read = read_rate(root, TOKEN, "a.alone", 3)
    assert read is not None
    assert written.size == read.size == 3 * MIB
    assert written.end > written.begin
    part = read_rate(root, TOKEN, "a.alone", 1)
    assert part is not None
    assert part.size == MIB


def test_file_that_is_still_written_is_read_when_it_is_whole(tmp_path: Path) -> None:
    writer = Thread(target=write_rate, args=(tmp_path, TOKEN, "a", 3, time.time() + 0.5))
    # The meeting of all machines comes before.
    write(tmp_path, TOKEN, "b")
    writer.start()
    read = read_rate(tmp_path, TOKEN, "a", 3)
    writer.join()
    assert read is not None
    assert read.size == 3 * MIB


def test_writer_that_gives_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for limit, seconds in (("WAIT_SECONDS", 0.2), ("LIMIT_SECONDS", 0.3)):
        monkeypatch.setattr(f"ansible_collections.argus.verl.plugins.module_utils.storage.rates.{limit}", seconds)
    write_rate(tmp_path, TOKEN, "part", 3, 0)
    read = read_rate(tmp_path, TOKEN, "part", 5)
    assert read is not None
    assert read.size == 3 * MIB
    # Not a rate of 0, with which the machine would look slow.
    write_rate(tmp_path, TOKEN, "empty", 0, 0)
    assert read_rate(tmp_path, TOKEN, "empty", 5) is None


def test_rate_begins_at_its_time(tmp_path: Path) -> None:
    start = time.time() + 0.3
    assert write_rate(tmp_path, TOKEN, "a", 1, start).begin >= start


def test_file_that_does_not_come_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ansible_collections.argus.verl.plugins.module_utils.storage.rates.WAIT_SECONDS", 0.3)
    with pytest.raises(TrialError, match="the file b is not there"):
        read_rate(tmp_path, TOKEN, "b", 1)


def test_mib_per_second() -> None:
    assert Rate(64 * MIB, 10.0, 12.0, True).mib_per_second == 32
