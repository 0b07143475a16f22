"""Bundles of real archives, with everything that a job or the root of a node may do to one."""

from __future__ import annotations

import gzip
import io
import os
import stat
import tarfile
from pathlib import Path

import pytest
from hostile_archives import unix_socket

from argus.jobs.bundle import BundleError, Limits, pack, unpack

LIMITS = Limits(file=1 << 20, total=1 << 22)


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    made = tmp_path / "jobs" / "grpo-1"
    for name, text in {
        "status.json": '{"state": "RUNNING"}',
        "logs/driver.log": "step 1\n",
        "logs/metrics-1.jsonl": "{}\n",
        "config/.job_spec.json.17": "half",
        "checkpoints/global_step_1/model.pt": "weights",
    }.items():
        (made / name).parent.mkdir(parents=True, exist_ok=True)
        (made / name).write_text(text)
        os.utime(made / name, (1_700_000_000, 1_700_000_000))
    (made / "debug").mkdir()
    (made / ".status.json.1").write_text("half writ")
    return made


def packed(archive: Path, checkpoints: bool = False, size: Limits = LIMITS) -> tuple[str, list[str]]:
    """The bundle of an archive, and what was skipped."""
    file = archive.parent / "bundle.tar.gz"
    with file.open("wb") as stream:
        return str(file), pack(archive, checkpoints, size, stream)


def fetch(archive: Path, target: Path, change: bool = True, checkpoints: bool = False) -> int:
    file, skipped = packed(archive, checkpoints)
    assert skipped == []
    return unpack(file, target, LIMITS, change)


def members(file: str) -> dict[str, bytes]:
    """The files of a bundle; there is nothing else in it."""
    with tarfile.open(file) as tar:
        assert {member.type for member in tar} <= {tarfile.REGTYPE}
        return {member.name: tar.extractfile(member).read() for member in tar}  # type: ignore[union-attr]


def files(target: Path) -> list[str]:
    return sorted(str(path.relative_to(target)) for path in target.rglob("*") if path.is_file())


def test_a_second_fetch_has_what_changed(archive: Path, tmp_path: Path) -> None:
    target = tmp_path / "artifacts"
    assert fetch(archive, target) == 3
    # Everything except checkpoints.
    assert files(target) == ["logs/driver.log", "logs/metrics-1.jsonl", "status.json"]
    assert (target / "status.json").stat().st_mtime == 1_700_000_000
    (target / "logs" / "metrics-1.jsonl").chmod(0o400)
    assert fetch(archive, target) == 0
    (archive / "logs" / "driver.log").write_text("step 1\nstep 2\n")
    (archive / "debug" / "stack.txt").write_text("stack")
    # The same size, another time.
    (archive / "status.json").write_text('{"state": "STOPPED"}')
    assert fetch(archive, target) == 3
    assert (target / "logs" / "driver.log").read_text() == "step 1\nstep 2\n"
    assert (target / "status.json").read_text() == '{"state": "STOPPED"}'
    assert fetch(archive, target) == 0


# --- What is packed --------------------------------------------------------------------------------------------------


def test_a_link_and_what_is_no_file_are_skipped_and_listed(archive: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("of root")
    logs = archive / "logs"
    (logs / "link").symlink_to(tmp_path / "secret")
    (logs / "tree").symlink_to(tmp_path)
    (logs / "dangling").symlink_to("nothing")
    os.mkfifo(logs / "fifo")
    unix_socket(logs / "socket")
    for name in ("\u202egnp", os.fsdecode(b"\xff")):
        (logs / name).write_text("x")
    file, skipped = packed(archive)
    assert sorted(skipped) == [
        "'logs/\\u202egnp': its name has characters that cannot be shown",
        "'logs/\\udcff': its name is not UTF-8",
        "logs/dangling: it is a link",
        "logs/fifo: it is not a regular file",
        "logs/link: it is a link",
        "logs/socket: it is not a regular file",
        "logs/tree: it is a link",
    ]
    assert sorted(members(file)) == ["logs/driver.log", "logs/metrics-1.jsonl", "status.json"]


def test_a_large_or_sparse_file_is_skipped_with_its_size(archive: Path, tmp_path: Path) -> None:
    for name, size in {"sparse": 1 << 40, "exact": 1 << 20, "over": (1 << 20) + 1}.items():
        with (archive / "debug" / name).open("wb") as file:
            file.truncate(size)
    file_name, skipped = packed(archive)
    assert skipped == [
        "debug/over: it has 1 MiB, more than 1 MiB",
        "debug/sparse: it has 1.0 TiB, more than 1 MiB",
    ]
    assert len(members(file_name)["debug/exact"]) == 1 << 20


def test_only_what_belongs_to_an_archive_is_taken(archive: Path, tmp_path: Path) -> None:
    names = ["ansible.cfg", ".argus", "report.html", "roles/x/tasks/main.yml", "logs/.vimrc", "debug/.git/config"]
    for name in [*names, "debug/ansible.cfg"]:
        (archive / name).parent.mkdir(parents=True, exist_ok=True)
        (archive / name).write_text("x")
    file, skipped = packed(archive)
    taken = ["debug/ansible.cfg", "logs/driver.log", "logs/metrics-1.jsonl", "status.json"]
    assert sorted(members(file)) == taken
    assert skipped == [f"{name}: it is no part of an archive" for name in ("ansible.cfg", "roles")]
    forged = hostile(tmp_path / "forged", *((name, tarfile.REGTYPE, "") for name in [*names, *taken]))
    assert unpack(forged, tmp_path / "here", LIMITS) == 4
    assert files(tmp_path / "here") == taken


# --- What is unpacked ------------------------------------------------------------------------------------------------


def hostile(file: Path, *members: tuple[str, bytes, str]) -> str:
    with tarfile.open(file, "w:gz") as tar:
        for name, kind, link in members:
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, link
            member.size = 4 if kind == tarfile.REGTYPE else 0
            tar.addfile(member, io.BytesIO(b"evil"))
    return str(file)


NO_FILE = "it is not a regular file"
ELSEWHERE = "its name leads elsewhere"


@pytest.mark.parametrize(
    ("members", "why"),
    [
        ([("../evil", tarfile.REGTYPE, "")], ELSEWHERE),
        ([("logs/../../evil", tarfile.REGTYPE, "")], ELSEWHERE),
        ([("/tmp/evil", tarfile.REGTYPE, "")], ELSEWHERE),
        ([("./a", tarfile.REGTYPE, "")], ELSEWHERE),
        ([("out", tarfile.SYMTYPE, "../.."), ("out/evil", tarfile.REGTYPE, "")], NO_FILE),
        ([("status.json", tarfile.LNKTYPE, "/etc/passwd")], NO_FILE),
        ([("fifo", tarfile.FIFOTYPE, "")], NO_FILE),
        ([("a\nb", tarfile.REGTYPE, "")], "its name has characters that cannot be shown"),
        ([("a/" * 40 + "b", tarfile.REGTYPE, "")], "it is more than 32 levels deep"),
        ([("x" * 256, tarfile.REGTYPE, "")], "its name has more than 1024 bytes, or 255 in one part"),
        # One bad member is enough to refuse the whole bundle.
        ([("good", tarfile.REGTYPE, ""), ("../evil", tarfile.REGTYPE, "")], ELSEWHERE),
    ],
)
def test_a_bundle_cannot_write_elsewhere(tmp_path: Path, members: list[tuple[str, bytes, str]], why: str) -> None:
    file = hostile(tmp_path / "bundle.tar.gz", *members)
    with pytest.raises(BundleError, match=f"^the bundle has .*, which was refused: {why}$"):
        unpack(file, tmp_path / "artifacts" / "grpo-1", LIMITS)
    assert files(tmp_path) == ["bundle.tar.gz"]


@pytest.mark.parametrize(
    ("size", "why"),
    [(Limits(3, 100), "it has 4 bytes, more than 3 bytes"), (Limits(4, 7), "with its 4 bytes, all files would .*")],
)
def test_a_bundle_cannot_fill_the_controller(tmp_path: Path, size: Limits, why: str) -> None:
    file = hostile(tmp_path / "bundle.tar.gz", ("a", tarfile.REGTYPE, ""), ("b", tarfile.REGTYPE, ""))
    with pytest.raises(BundleError, match=f"which was refused: {why}$"):
        unpack(file, tmp_path / "artifacts" / "grpo-1", size)
    assert files(tmp_path) == ["bundle.tar.gz"]


def test_a_header_of_gigabytes_is_not_read_into_memory(tmp_path: Path) -> None:
    header = tarfile.TarInfo("x")
    header.type, header.size = tarfile.XHDTYPE, 4 << 30
    with gzip.open(tmp_path / "bundle.tar.gz", "wb") as file:
        file.write(header.tobuf(tarfile.USTAR_FORMAT) + b"\0" * 1024)
    with pytest.raises(BundleError, match=r"^the bundle has a header of more than 1 MiB$"):
        unpack(str(tmp_path / "bundle.tar.gz"), tmp_path / "artifacts" / "grpo-1", LIMITS)


def cut_off() -> bytes:
    """A bundle of two files without the end of the second."""
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w:gz") as tar:
        for name in ("first", "second"):
            member = tarfile.TarInfo(name)
            member.size = 1 << 20
            tar.addfile(member, io.BytesIO(os.urandom(1 << 20)))
    return whole.getvalue()[: 3 << 19]


@pytest.mark.parametrize("content", [b"", gzip.compress(b"x" * 2000), cut_off()], ids=["empty", "no tar", "cut"])
def test_a_damaged_bundle(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "bundle.tar.gz").write_bytes(content)
    with pytest.raises(BundleError, match=r"^the bundle is damaged: "):
        unpack(str(tmp_path / "bundle.tar.gz"), tmp_path / "artifacts" / "grpo-1", LIMITS)
    assert not (tmp_path / "artifacts").exists()


def test_modes_and_times(archive: Path, tmp_path: Path) -> None:
    (archive / "status.json").chmod(0o6777)
    os.utime(archive / "logs" / "driver.log", (-(10**9), -(10**9)))
    target = tmp_path / "here"
    before = os.umask(0)
    try:
        assert fetch(archive, target) == 3
    finally:
        os.umask(before)
    assert {stat.S_IMODE(path.stat().st_mode) for path in target.rglob("*") if path.is_file()} == {0o640}
    assert {stat.S_IMODE(path.stat().st_mode) for path in (target, target / "logs")} == {0o750}
    assert (target / "logs" / "driver.log").stat().st_mtime == 0
    assert fetch(archive, target) == 0
