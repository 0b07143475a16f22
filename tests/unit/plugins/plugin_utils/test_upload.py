"""Where the files of a dataset are."""

from __future__ import annotations

import hashlib
import os
import socket
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.argus.verl.plugins.module_utils.argus.staging.errors import StagingError
from ansible_collections.argus.verl.plugins.plugin_utils.program_call import Node
from ansible_collections.argus.verl.plugins.plugin_utils.upload import From, place_of, read, resolved, upload_of


@pytest.mark.parametrize(
    ("train", "given", "place"),
    [
        (["data/a.jsonl"], None, From.CONTROLLER),
        (["~/a.jsonl", "data/*.jsonl"], None, From.CONTROLLER),
        (["/private/a.jsonl"], None, From.NODE),
        (["/home/ann/a.jsonl", "b.jsonl"], "controller", From.CONTROLLER),
        (["raw/a.jsonl"], "shared_root", From.SHARED_ROOT),
        (["/private/a.jsonl"], "node", From.NODE),
    ],
)
def test_the_rule(train: list[str], given: str | None, place: From) -> None:
    assert place_of({"train": train}, given) is place


def test_a_mixture_has_to_say_where_its_files_are() -> None:
    with pytest.raises(StagingError, match="has relative paths, of the controller, and absolute ones, of nodes"):
        place_of({"train": ["a.jsonl"], "val": ["/b.jsonl"]}, None)


def test_relative_paths_begin_at_the_inventory_and_patterns_are_sorted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("b.jsonl", "a.jsonl", ".hidden.jsonl"):
        (tmp_path / name).write_text(name)
    (tmp_path / "directory.jsonl").mkdir()
    monkeypatch.setattr(socket, "gethostname", lambda: "ann")
    upload = upload_of({"train": ["*.jsonl", "a.jsonl"], "val": ["none.jsonl", str(tmp_path / "a.jsonl")]}, tmp_path)
    assert {split: [file.path for file in files] for split, files in upload.files.items()} == {
        "train": [f"{tmp_path}/a.jsonl", f"{tmp_path}/b.jsonl"],
        "val": [f"{tmp_path}/a.jsonl"],
    }
    assert upload.missing == {"val": [f"{tmp_path}/none.jsonl"]}
    assert upload.bytes == 14
    assert upload.label == "a.jsonl, b.jsonl of ann"
    assert {file.sha256 for file in upload.all} == {""}
    assert read(upload).all[0].sha256 == hashlib.sha256(b"a.jsonl").hexdigest()


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").touch(0)
    with pytest.raises(StagingError, match=f"cannot read {tmp_path}/a.jsonl"):
        upload_of({"train": ["a.jsonl"]}, tmp_path)


def test_special_files_and_strange_names_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.jsonl")
    with pytest.raises(StagingError, match=f"cannot read {tmp_path}/a.jsonl"):
        upload_of({"train": ["a.jsonl"]}, tmp_path)
    (tmp_path / "b\x1b.jsonl").touch()
    with pytest.raises(StagingError, match="has characters that cannot be shown"):
        upload_of({"train": ["b*"]}, tmp_path)


NODE = Node("head", shared_root="/private", shared_root_source="/srv/verl")


def test_files_of_the_shared_root_have_the_path_of_the_nodes() -> None:
    given: dict[str, Any] = {"from": "shared_root"}
    files = {"train": ["raw/a.jsonl", "/private/raw/b.jsonl"], "val": None}
    assert resolved({**given, "files": files}, NODE) == (
        {"files": {"train": ["/private/raw/a.jsonl", "/private/raw/b.jsonl"]}},
        {},
    )
    for pattern in ("/srv/verl/raw/a.jsonl", "../etc/passwd"):
        with pytest.raises(StagingError, match="is /private in nodes, and /srv/verl on the head's machine") as error:
            resolved({**given, "files": {"train": pattern}}, NODE)
        assert f'files.train: "{pattern}" is not below the shared root' in str(error.value)


def test_what_is_not_on_the_controller_is_left_to_the_program() -> None:
    for arguments in ({"files": {"train": ["/a"]}}, {"tiny": True}, {"hub": "a/b", "files": {"train": ["a.jsonl"]}}):
        assert resolved(arguments, NODE) == (arguments, {})
    absent = {"state": "absent", "files": {"train": ["a.jsonl"]}}
    assert resolved(absent, NODE) == (absent, {})
    assert resolved({"name": "a", "files": {"train": "a.jsonl"}}, NODE) == ({"name": "a"}, {"train": ["a.jsonl"]})


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ({"from": "laptop", "files": {"train": ["a"]}}, '"laptop" is not one of controller, shared_root, node'),
        ({"from": "node", "tiny": True}, "has an effect only with files"),
        ({"from": "node", "hub": "a/b", "files": {"train": ["a"]}}, "has an effect only with files"),
    ],
)
def test_from_that_says_nothing(arguments: dict[str, Any], what: str) -> None:
    with pytest.raises(StagingError, match=what):
        resolved(arguments, NODE)
