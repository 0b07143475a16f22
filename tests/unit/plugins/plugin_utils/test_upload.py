"""Where the files of a dataset are."""

from __future__ import annotations

import hashlib
import os
import socket
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.argus.verl.plugins.module_utils.argus.staging.options import StagingError
from ansible_collections.argus.verl.plugins.plugin_utils.controller_files import (
    controller_patterns,
    upload_of,
    with_hashes,
)


@pytest.mark.parametrize(
    ("train", "origin", "is_here"),
    [
        (["data/a.jsonl"], None, True),
        ("a.jsonl", None, True),
        (["/private/a.jsonl"], None, False),
        (["/home/ann/a.jsonl", "b.jsonl"], "controller", True),
        (["/private/a.jsonl"], "node", False),
        (["a.jsonl"], "laptop", False),
        (["a.jsonl", 7], None, False),
        ({"a": 1}, None, False),
    ],
)
def test_files_of_the_controller(train: Any, origin: Any, is_here: bool) -> None:
    patterns = controller_patterns({"files": {"train": train, "val": None}, "from": origin})
    assert patterns == ({"train": [train] if isinstance(train, str) else train} if is_here else {})
    # Relative paths of the controller, and absolute ones of nodes.
    with pytest.raises(StagingError):
        controller_patterns({"files": {"train": ["a.jsonl"], "val": ["/b.jsonl"]}})
    for item in ({"hub": "a/b"}, {"state": "absent"}):
        assert controller_patterns({"files": {"train": ["a.jsonl"]}, **item}) == {}
    assert controller_patterns({"files": "a"}) == controller_patterns("a.jsonl") == controller_patterns(None) == {}


def test_relative_paths_begin_at_the_inventory_and_patterns_are_sorted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("b.jsonl", "a.jsonl", ".hidden.jsonl"):
        (tmp_path / name).write_text(name)
    (tmp_path / "directory.jsonl").mkdir()
    monkeypatch.setattr(socket, "gethostname", lambda: "ann")
    upload = upload_of({"train": ["*.jsonl", "a.jsonl"], "val": ["none.jsonl", str(tmp_path / "a.jsonl")]}, tmp_path)
    paths = [[file.path for file in upload.files[split]] for split in ("train", "val")]
    assert paths == [[f"{tmp_path}/a.jsonl", f"{tmp_path}/b.jsonl"], [f"{tmp_path}/a.jsonl"]]
    assert upload.missing == {"val": [f"{tmp_path}/none.jsonl"]}
    os.mkfifo(tmp_path / "c.fifo")
    (tmp_path / "d\x1b.data").touch()
    for name in ("c.fifo", "d*"):
        with pytest.raises(StagingError):
            upload_of({"train": [name]}, tmp_path)
    assert upload.bytes == 14
    assert upload.label == "a.jsonl, b.jsonl of ann"
    assert {file.sha256 for file in upload.members.values()} == {""}
    assert next(iter(with_hashes(upload).members.values())).sha256 == hashlib.sha256(b"a.jsonl").hexdigest()
