"""The real module."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.testing import patch_module_args
from ansible_collections.argus.verl.plugins.modules import preflight_files


def result(capsys: pytest.CaptureFixture[str], **arguments: Any) -> dict[str, Any]:
    with patch_module_args({"html": "<p>", "json": "{}", **arguments}), pytest.raises(SystemExit):
        preflight_files.main()
    return dict(json.loads(capsys.readouterr().out))


def test_files_have_the_name_of_the_cluster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert result(capsys, shared_root=str(tmp_path), name="mvp")["path"] == f"{tmp_path}/preflight"
    assert (tmp_path / "preflight/mvp.html").read_text() == "<p>"
    assert (tmp_path / "preflight/mvp.json").read_text() == "{}"


def test_names_that_are_paths_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = result(capsys, shared_root=str(tmp_path), name="../x")
    assert answer["failed"]
    assert list(tmp_path.iterdir()) == []


def test_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert result(capsys, shared_root=f"{tmp_path}/none", name="mvp")["failed"]
