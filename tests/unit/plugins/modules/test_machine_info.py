"""The real module, on this machine and without a container engine."""

from __future__ import annotations

import json
import os
import platform
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.testing import patch_module_args
from ansible_collections.argus.verl.plugins.modules import machine_info


def result(capsys: pytest.CaptureFixture[str], **arguments: Any) -> dict[str, Any]:
    with patch_module_args({"cluster": "mvp", "engine": "none", **arguments}), pytest.raises(SystemExit):
        machine_info.main()
    return dict(json.loads(capsys.readouterr().out))


def test_the_token_is_looked_for_and_the_host_has_a_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = result(capsys, expect={"hcas": 1000, "token_file": str(tmp_path / "token")})
    assert answer["machine"]["engine"]["status"] == "none" and not answer.get("changed")
    assert [mount["path"] for mount in answer["machine"]["mounts"]] == [str(tmp_path / "token"), str(tmp_path)]
    assert {finding["where"] for finding in answer["findings"]} == {platform.node()}
    answer = result(capsys, host="gpu-01", expect={"shared_root": str(tmp_path / "none"), "gpus": "3"})
    assert (answer["expect"]["gpus"], answer["expect"]["hcas"]) == (3, 0)
    assert answer["machine"]["system"]["kernel"] == platform.release()
    assert ("gpu-01", "root.answers") in {(finding["where"], finding["key"]) for finding in answer["findings"]}


def test_name_that_is_no_name_is_refused_on_machines_too(capsys: pytest.CaptureFixture[str]) -> None:
    """With --limit, the inventory was not checked."""
    for name in ("", "..", "-rf"):
        answer = result(capsys, cluster=name)
        assert answer["failed"] and f"cluster_name is {name!r}" in answer["msg"]


def test_owner_of_the_archives_is_not_that_of_what_a_link_leads_to(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "jobs").symlink_to("/")
    os.chown(tmp_path / "jobs", os.getuid(), 100 if os.getuid() == 0 else os.getgid(), follow_symlinks=False)
    link = (tmp_path / "jobs").lstat()
    (state,) = result(capsys, expect={"shared_root": str(tmp_path)})["machine"]["mounts"]
    assert state["archives_owner"] == f"{link.st_uid}:{link.st_gid}"
    assert state["mode"] == tmp_path.stat().st_mode & 0o7777
