from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest
from ansible_collections.argus.verl.plugins.action.job_fetch import differs, unpack
from ansible_collections.argus.verl.plugins.modules.job_fetch import bundle


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


def fetch(archive: Path, target: Path, change: bool = True, checkpoints: bool = False) -> int:
    file = archive.parent / "bundle.tar.gz"
    bundle(archive, checkpoints, str(file))
    return unpack(str(file), target, change)


def files(target: Path) -> list[str]:
    return sorted(str(path.relative_to(target)) for path in target.rglob("*") if path.is_file())


def test_a_first_fetch_brings_everything_but_checkpoints(archive: Path, tmp_path: Path) -> None:
    target = tmp_path / "artifacts" / "grpo-1"
    assert fetch(archive, target) == 3
    assert files(target) == ["logs/driver.log", "logs/metrics-1.jsonl", "status.json"]
    assert (target / "logs" / "driver.log").read_text() == "step 1\n"
    assert (target / "status.json").stat().st_mtime == 1_700_000_000


def test_checkpoints_come_when_asked_for(archive: Path, tmp_path: Path) -> None:
    target = tmp_path / "artifacts"
    fetch(archive, target)
    assert fetch(archive, target, checkpoints=True) == 1
    assert (target / "checkpoints" / "global_step_1" / "model.pt").read_text() == "weights"


def test_a_second_fetch_brings_what_changed(archive: Path, tmp_path: Path) -> None:
    target = tmp_path / "artifacts"
    fetch(archive, target)
    (target / "logs" / "metrics-1.jsonl").chmod(0o400)
    assert fetch(archive, target) == 0
    (archive / "logs" / "driver.log").write_text("step 1\nstep 2\n")
    (archive / "debug" / "stack.txt").write_text("stack")
    # Of the same size, at another time.
    (archive / "status.json").write_text('{"state": "STOPPED"}')
    assert fetch(archive, target) == 3
    assert (target / "logs" / "driver.log").read_text() == "step 1\nstep 2\n"
    assert (target / "status.json").read_text() == '{"state": "STOPPED"}'
    assert fetch(archive, target) == 0


def test_nothing_is_written_in_check_mode(archive: Path, tmp_path: Path) -> None:
    target = tmp_path / "artifacts"
    assert fetch(archive, target, change=False) == 3
    assert not target.exists()


def test_what_somebody_added_here_stays(archive: Path, tmp_path: Path) -> None:
    target = tmp_path / "artifacts"
    target.mkdir()
    (target / "notes.txt").write_text("mine")
    fetch(archive, target)
    assert (target / "notes.txt").read_text() == "mine"


def hostile(file: Path, *members: tuple[str, bytes, str]) -> str:
    with tarfile.open(file, "w:gz") as tar:
        for name, kind, link in members:
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, link
            member.size = 4 if kind == tarfile.REGTYPE else 0
            tar.addfile(member, io.BytesIO(b"evil"))
    return str(file)


@pytest.mark.parametrize(
    "members",
    [
        [("../evil", tarfile.REGTYPE, "")],
        [("logs/../../evil", tarfile.REGTYPE, "")],
        [("/tmp/evil", tarfile.REGTYPE, "")],
        [("out", tarfile.SYMTYPE, "../.."), ("out/evil", tarfile.REGTYPE, "")],
        [("passwd", tarfile.SYMTYPE, "/etc/passwd")],
        [("fifo", tarfile.FIFOTYPE, "")],
        # Nothing of a bundle is taken of which a part is wrong.
        [("good", tarfile.REGTYPE, ""), ("../evil", tarfile.REGTYPE, "")],
    ],
)
def test_a_bundle_cannot_write_elsewhere(tmp_path: Path, members: list[tuple[str, bytes, str]]) -> None:
    file = hostile(tmp_path / "bundle.tar.gz", *members)
    target = tmp_path / "artifacts" / "grpo-1"
    with pytest.raises(ValueError, match="which is not a regular file below the archive"):
        unpack(file, target, change=True)
    assert files(tmp_path) == ["bundle.tar.gz"]


def test_what_differs(tmp_path: Path) -> None:
    there = tmp_path / "file"
    member = tarfile.TarInfo("file")
    member.size, member.mtime = 3, 1000
    assert differs(member, there)
    there.write_text("abc")
    os.utime(there, (1000.75, 1000.75))
    assert not differs(member, there)
    os.utime(there, (1001, 1001))
    assert differs(member, there)
    there.write_text("abcd")
    os.utime(there, (1000, 1000))
    assert differs(member, there)
    assert differs(member, tmp_path)
