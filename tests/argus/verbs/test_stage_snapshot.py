"""argus stage, of a snapshot, with the files of a machine after its request."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import Any

import pytest
from staging_snapshots import TAKEN, run_program

from argus.common.shared_root import SNAPSHOTS
from argus.snapshot.tree import MOST_BYTES, content_identity
from argus.staging.manifest import file_sha256

PART = {"place": "machine", "label": "/src", "code_id": "mine", "facts": {"requirements": []}}


def member(name: str, **fields: Any) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    for field, value in fields.items():
        setattr(info, field, value)
    return info


def packed(*more: tarfile.TarInfo) -> bytes:
    """The files of a source, and more members."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for name, text in TAKEN.items():
            archive.addfile(member(f"0/{name}", size=len(text)), io.BytesIO(text.encode()))
        for info in (*more, member("0")):
            archive.addfile(info)
    return file.getvalue()


@pytest.fixture
def part(tmp_path: Path) -> dict[str, Any]:
    hashes = {}
    for name, text in TAKEN.items():
        (tmp_path / "file").write_text(text)
        hashes[name] = file_sha256(str(tmp_path / "file"))
    (tmp_path / "file").unlink()
    return {**PART, "identity": content_identity(hashes)}


def stage(root: Path, part: dict[str, Any], attachment: bytes, **options: Any) -> tuple[str, str]:
    """Its status, or the problem."""
    request = {"kind": "snapshot", "item": {}, "shared_root": str(root), "parts": [part], "attached": True, **options}
    answer = run_program(0, "stage", attachment, **request)
    return answer["result"].get("status", ""), "; ".join(finding["what"] for finding in answer["findings"])


def left(root: Path) -> list[str]:
    return [path.name for path in (root / SNAPSHOTS).iterdir()]


def test_what_is_attached_is_staged(tmp_path: Path, part: dict[str, Any]) -> None:
    # Without files, it is only told that they are needed.
    assert stage(tmp_path, part, b"", attached=False, check=True) == ("staged", "")
    assert not (tmp_path / SNAPSHOTS).exists()
    assert stage(tmp_path, part, b"", attached=False) == ("deferred", "")
    assert left(tmp_path) == []
    assert stage(tmp_path, part, packed()) == ("staged", "")
    assert stage(tmp_path, part, b"", attached=False) == ("exists", "")
    assert left(tmp_path) == ["mine"]


@pytest.mark.parametrize(
    "wrong",
    [
        member("0/verl/link", type=tarfile.SYMTYPE, linkname="/etc/passwd"),
        member("0/verl/hard", type=tarfile.LNKTYPE, linkname="0/verl/__init__.py"),
        member("0/verl/device", type=tarfile.CHRTYPE),
        member("0/../outside"),
        member("1/verl/other.py"),
        member("0//etc/outside"),
        member("0/verl/a\x1b[2J.py"),
    ],
    ids=lambda info: info.name,
)
def test_members_that_are_no_source_files(tmp_path: Path, part: dict[str, Any], wrong: tarfile.TarInfo) -> None:
    status, problem = stage(tmp_path, part, packed(wrong))
    assert (status, "is no source file" in problem) == ("", True)
    assert left(tmp_path) == []


def test_an_attachment_is_bounded(tmp_path: Path, part: dict[str, Any]) -> None:
    sparse = member("0/verl/huge", size=MOST_BYTES + 1)
    assert "is no source file" in stage(tmp_path, part, sparse.tobuf())[1]
    assert left(tmp_path) == []


@pytest.mark.parametrize("size", [0, 100, 512, 700, 1600, 2048])
@pytest.mark.parametrize("identity", ["", "verl==0.10.0"])
def test_an_attachment_that_is_cut_off(tmp_path: Path, part: dict[str, Any], size: int, identity: str) -> None:
    # The content of a release is not described.
    part["identity"] = identity or part["identity"]
    status, problem = stage(tmp_path, part, packed()[:size])
    assert (status, "did not arrive completely" in problem) == ("", True)
    assert left(tmp_path) == []


def test_other_content_than_was_described(tmp_path: Path, part: dict[str, Any]) -> None:
    status, problem = stage(tmp_path, part, packed(member("0/verl/more.py")))
    assert (status, "changed while it was copied" in problem) == ("", True)
    assert left(tmp_path) == []


def test_another_cluster_is_not_written(tmp_path: Path, part: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARGUS_VERL_SHARED_ROOT", "/srv/other")
    assert "belongs to a cluster" in stage(tmp_path, part, packed(), shared_root_source="/srv/x")[1]
