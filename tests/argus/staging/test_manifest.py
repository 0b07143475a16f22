"""Manifests: text, verification and permissions."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from staging_store import asked, no_build
from staging_tools import problems, stage

from argus.staging.lock import Progress
from argus.staging.manifest import MANIFEST, Manifest, Status, read_manifest
from argus.staging.options import StagingError
from argus.staging.store import Built


def test_quick_verification_finds_changes_of_size_or_time(tmp_path: Path) -> None:
    def many(directory: Path, _progress: Progress) -> Built:
        for name in ("changed", "fine", "longer", "missing", "touched"):
            (directory / name).write_text(name)
        return Built()

    target = tmp_path / "tiny"
    stage(asked(target, many))
    (target / "missing").unlink()
    (target / "longer").write_text("longer than before")
    (target / "changed").write_text("CHANGED")
    (target / "touched").write_text("touched")
    (target / "added").mkdir()
    (target / "added" / "more").write_text("")
    (target / "added" / "link").symlink_to(tmp_path)
    assert problems(target) == {
        "changed": "has other content",
        "longer": "has 18 bytes, not 6",
        "missing": "is missing",
        "added/link": "is not in the manifest",
        "added/more": "is not in the manifest",
    }


def test_what_is_no_change(tiny: Path) -> None:
    for name in ("__pycache__/a.cpython-311.pyc", "more/b.pyc", ".git/HEAD", "verl.egg-info/PKG-INFO"):
        (tiny / name).parent.mkdir(exist_ok=True)
        (tiny / name).write_text("")
    assert stage(asked(tiny, no_build), full=True).status == Status.EXISTS
    # As an editor that keeps the modification time.
    stat = (tiny / "train.parquet").stat()
    (tiny / "train.parquet").write_text("ROWS")
    os.utime(tiny / "train.parquet", ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert stage(asked(tiny, no_build)).status == Status.EXISTS
    with pytest.raises(StagingError, match=r"train\.parquet has other content"):
        stage(asked(tiny, no_build), full=True)
    # Its content counts, if its time is another one.
    (tiny / "train.parquet").write_text("rows")
    os.utime(tiny / "train.parquet")
    assert stage(asked(tiny, no_build)).status == Status.EXISTS


MANIFEST_TEXT = """{
 "kind": "model",
 "later": [
  1
 ],
 "name": "ä",
 "commit": null,
 "files": {
  "a": {"size": 1, "mtime_ns": 3, "sha256": "0000000000000000000000000000000000000000000000000000000000000000"},
  "b": {"size": 2, "mtime_ns": 3, "sha256": "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}
 }
}
"""


def test_a_manifest_keeps_order_and_unknown_keys_byte_for_byte() -> None:
    manifest = Manifest.from_json(json.loads(MANIFEST_TEXT))
    assert manifest.text() == MANIFEST_TEXT
    assert (manifest.kind, manifest.commit, manifest.revision, manifest.bytes) == ("model", None, None, 3)


@pytest.mark.parametrize("text", ["{", "[]", '{"files": []}', '{"files": {"a": 1}}', '{"files": {"a": {"size": 1}}}'])
def test_other_text_is_not_a_manifest(tmp_path: Path, text: str) -> None:
    (tmp_path / MANIFEST).write_text(text)
    with pytest.raises(StagingError, match=r"manifest\.json: is not .* and stage it again"):
        read_manifest(tmp_path)


def test_what_a_manifest_could_not_be_read_with_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(StagingError, match="cannot be described in a manifest: source is not a text of printable"):
        stage(asked(tmp_path / "one", lambda _directory, _progress: Built({"source": "a\x1b[2J"})))
    assert not (tmp_path / "one").exists()
