from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.argus.verl.plugins.module_utils.launcher.archive import Archive
from ansible_collections.argus.verl.plugins.module_utils.operations.evidence import Collected, EvidenceError, collect

INDEX = "debug/index.jsonl"
OLD = '{"moment": "demand", "file": "debug/old.txt", "node": "w9"}\n'
WRITES = """
import json, sys
assert sys.argv[1] == "evidence" and sys.argv[3] == "demand", sys.argv
with open(sys.argv[2] + "/debug/index.jsonl", "a") as index:
    for entry in (
        {"moment": "demand", "file": "debug/a.txt", "node": "w1"},
        {"moment": "demand", "file": "debug/b.txt", "node": "w0", "error": "no answer"},
        {"moment": "demand", "file": "", "error": "Ray does not answer"},
        {"moment": "periodic", "file": "debug/c.txt", "node": "w2"},
    ):
        index.write(json.dumps(entry) + chr(10))
"""


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    made = Archive(tmp_path / "jobs" / "sft-1")
    made.reserve()
    (made.path / INDEX).write_text(OLD)
    return made


def launcher(archive: Archive, source: str) -> None:
    archive.write_text("config/launcher/__main__.py", source)


def test_evidence_is_collected_by_the_launcher_in_the_archive(archive: Archive) -> None:
    launcher(archive, WRITES)
    collected = collect(archive)
    # What was there before, and what the steward collects at the same time, does not count.
    problems = ("debug/b.txt no answer", "Ray does not answer")
    assert collected == Collected(str(archive.path), files=2, nodes=("w0", "w1"), problems=problems)
    assert collected.to_json() == {
        "archive": str(archive.path),
        "files": 2,
        "nodes": ["w0", "w1"],
        "problems": list(problems),
    }


def test_a_launcher_that_fails(archive: Archive) -> None:
    launcher(archive, "import sys; sys.exit('no space left')")
    with pytest.raises(EvidenceError, match=r"^The evidence of sft-1 could not be collected: no space left$"):
        collect(archive)


def test_a_launcher_that_hangs(archive: Archive) -> None:
    launcher(archive, "import time; time.sleep(30)")
    with pytest.raises(EvidenceError, match=r"sft-1 is incomplete: collecting it took longer than 0.3 s. .*/debug has"):
        collect(archive, timeout=0.3)


def test_an_archive_without_a_launcher(archive: Archive) -> None:
    with pytest.raises(EvidenceError, match="has no config/launcher: the submission of the job has failed early"):
        collect(archive)
