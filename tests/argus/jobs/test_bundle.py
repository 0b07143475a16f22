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


def packed(archive: Path) -> tuple[str, list[str]]:
    """The bundle of an archive, and what was skipped."""
    file = archive.parent / "bundle.tar.gz"
    with file.open("wb") as stream:
        return str(file), pack(archive, False, LIMITS, stream)


def fetch(archive: Path, target: Path) -> int:
    file, skipped = packed(archive)
    assert skipped == []
    return unpack(file, target, LIMITS)


def members(file: str) -> dict[str, bytes]:
    """The files of a bundle; there is nothing else in it."""
    with tarfile.open(file) as tar:
        assert {member.type for member in tar} <= {tarfile.REGTYPE}
        return {member.name: tar.extractfile(member).read() for member in tar}  # type: ignore[union-attr]


def files(target: Path) -> list[str]:
    return sorted(str(path.relative_to(target)) for path in target.rglob("*") if path.is_file())


def test_a_second_fetch_has_what_changed(archive: Path, tmp_path: Path) -> None:
    target = tmp_path / "artifacts"
    (archive / "status.json").chmod(0o6777)
    os.utime(archive / "logs" / "driver.log", (-(10**9), -(10**9)))
    before = os.umask(0)
    try:
        assert fetch(archive, target) == 3
    finally:
        os.umask(before)
    # Everything except checkpoints.
    assert files(target) == ["logs/driver.log", "logs/metrics-1.jsonl", "status.json"]
    assert {stat.S_IMODE((target / name).stat().st_mode) for name in files(target)} == {0o640}
    assert {stat.S_IMODE(path.stat().st_mode) for path in (target, target / "logs")} == {0o750}
    assert (target / "status.json").stat().st_mtime == 1_700_000_000
    assert fetch(archive, target) == 0
    (archive / "logs" / "driver.log").write_text("step 1\nstep 2\n")
    # The same size, another time.
    (archive / "status.json").write_text('{"state": "STOPPED"}')
    assert fetch(archive, target) == 2
    assert (target / "logs" / "driver.log").read_text() == "step 1\nstep 2\n"
    assert (target / "status.json").read_text() == '{"state": "STOPPED"}'


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
    with (logs / "large").open("wb") as large:
        large.truncate((1 << 20) + 1)
    file, skipped = packed(archive)
    left_out = ["'logs/\\u202egnp'", "'logs/\\udcff'", *(f"logs/{name}" for name in ("dangling", "fifo", "large"))]
    assert sorted(entry.split(":")[0] for entry in skipped) == [*left_out, "logs/link", "logs/socket", "logs/tree"]
    assert sorted(members(file)) == ["logs/driver.log", "logs/metrics-1.jsonl", "status.json"]


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
    assert (unpack(forged, tmp_path / "here", LIMITS), files(tmp_path / "here")) == (4, taken)


def hostile(file: Path, *members: tuple[str, bytes, str]) -> str:
    with tarfile.open(file, "w:gz") as tar:
        for name, kind, link in members:
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, link
            member.size = 4 if kind == tarfile.REGTYPE else 0
            tar.addfile(member, io.BytesIO(b"evil"))
    return str(file)


NAMES = ("../evil", "logs/../../evil", "/tmp/evil", "./a", "a\nb", "a/" * 40 + "b", "x" * 256)
TWO = [("a", tarfile.REGTYPE, ""), ("b", tarfile.REGTYPE, "")]


@pytest.mark.parametrize(
    ("members", "limits"),
    [
        # One bad member is enough to refuse the whole bundle.
        *(([("good", tarfile.REGTYPE, ""), (name, tarfile.REGTYPE, "")], LIMITS) for name in NAMES),
        ([("out", tarfile.SYMTYPE, "../.."), ("out/evil", tarfile.REGTYPE, "")], LIMITS),
        ([("status.json", tarfile.LNKTYPE, "/etc/passwd")], LIMITS),
        ([("fifo", tarfile.FIFOTYPE, "")], LIMITS),
        (TWO, Limits(3, 100)),
        (TWO, Limits(4, 7)),
    ],
)
def test_a_bundle_can_neither_write_elsewhere_nor_fill_the_controller(
    tmp_path: Path, members: list[tuple[str, bytes, str]], limits: Limits
) -> None:
    file = hostile(tmp_path / "bundle.tar.gz", *members)
    with pytest.raises(BundleError, match="which was refused: "):
        unpack(file, tmp_path / "artifacts" / "grpo-1", limits)
    assert files(tmp_path) == ["bundle.tar.gz"]


def test_a_header_of_gigabytes_is_not_read_into_memory(tmp_path: Path) -> None:
    header = tarfile.TarInfo("x")
    header.type, header.size = tarfile.XHDTYPE, 4 << 30
    with gzip.open(tmp_path / "bundle.tar.gz", "wb") as file:
        file.write(header.tobuf(tarfile.USTAR_FORMAT) + b"\0" * 1024)
    with pytest.raises(BundleError, match=r"^the bundle has a header of more than 1 MiB$"):
        unpack(str(tmp_path / "bundle.tar.gz"), tmp_path / "artifacts" / "grpo-1", LIMITS)


@pytest.mark.parametrize("cut", [0, 60, 100])
def test_a_damaged_bundle(tmp_path: Path, cut: int) -> None:
    file = Path(hostile(tmp_path / "bundle.tar.gz", *((name, tarfile.REGTYPE, "") for name in ("first", "second"))))
    file.write_bytes(file.read_bytes()[:cut])
    with pytest.raises(BundleError, match=r"^the bundle is damaged: "):
        unpack(str(file), tmp_path / "artifacts" / "grpo-1", LIMITS)
    assert not (tmp_path / "artifacts").exists()
