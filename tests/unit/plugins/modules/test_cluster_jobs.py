from __future__ import annotations

import os
from pathlib import Path

import pytest
from ansible_collections.argus.verl.plugins.module_utils import privileges
from ansible_collections.argus.verl.plugins.module_utils.argus.launcher import redact
from ansible_collections.argus.verl.plugins.module_utils.argus.launcher.archive import Archive
from ansible_collections.argus.verl.plugins.modules.cluster_jobs import closed


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    made = Archive(tmp_path / "jobs" / "sft-1")
    made.reserve()
    made.set_status("RUNNING")
    redact.store(made.path, {"KEY": "value"})
    return made


def test_archives_are_closed(tmp_path: Path, archive: Archive) -> None:
    assert closed(tmp_path, ["sft-1"], True)["closed"] == ["sft-1"]
    assert redact.load(archive.path)
    result = closed(tmp_path, ["sft-1", "gone"], False)
    assert result == {"changed": True, "closed": ["sft-1"], "findings": []}
    assert archive.read_status().state == "STOPPED"
    assert closed(tmp_path, ["sft-1"], False)["changed"] is False


def test_a_shared_root_that_cannot_be_worked_on_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "ansible_collections.argus.verl.plugins.modules.cluster_jobs.without_root",
        lambda _root, _work: privileges.failure("no mount"),
    )
    (finding,) = closed(tmp_path, ["sft-1", "sft-2"], False)["findings"]
    assert finding["what"].endswith(": no mount")
    assert finding["todo"] == f"remove the files in {tmp_path}/jobs/.secrets of: sft-1, sft-2"


@pytest.mark.skipif(os.geteuid() != 0, reason="root works as the user of the nodes")
def test_root_follows_no_link_of_a_job(archive: Archive) -> None:
    root = archive.path.parents[1]
    for path in (root, *root.rglob("*")):
        os.chown(path, 61000, 61000)
    for above in root.parents[:-2]:
        above.chmod(above.stat().st_mode | 0o055)
    away = root.parent / f"{root.name}-of-root"
    away.mkdir(mode=0o700)
    (away / "sft-1.json").write_text("a file of root")
    redact.secrets_file(archive.path).unlink()
    (archive.jobs / ".secrets").rmdir()
    (archive.jobs / ".secrets").symlink_to(away)
    # Nor is it a reason to leave the archive open.
    assert closed(root, ["sft-1"], False) == {"changed": True, "closed": ["sft-1"], "findings": []}
    assert (away / "sft-1.json").read_text() == "a file of root"
