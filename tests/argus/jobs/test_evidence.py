from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from argus.jobs.evidence import Collected, EvidenceError, collect
from argus.launcher.archive import Archive
from argus.launcher.program import Program

INDEX = "debug/index.jsonl"
OLD = '{"moment": "demand", "file": "debug/old.txt", "node": "w9"}\n'
WRITES = """
import json, sys
assert sys.argv[2] == "evidence" and sys.argv[4] == "demand", sys.argv
with open(sys.argv[3] + "/debug/index.jsonl", "a") as index:
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


@pytest.fixture
def launcher(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], None]:
    """Makes a text the whole program."""

    def replace(source: str) -> None:
        (tmp_path / "__main__.py").write_text(source)
        monkeypatch.setattr(Program, "of_this_process", lambda: Program(str(tmp_path)))

    return replace


def test_evidence_is_collected(archive: Archive, launcher: Callable[[str], None]) -> None:
    launcher(WRITES)
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


def test_a_launcher_that_fails(archive: Archive, launcher: Callable[[str], None]) -> None:
    launcher("import sys; sys.exit('no space left')")
    with pytest.raises(EvidenceError, match=r"^The evidence of sft-1 could not be collected: no space left$"):
        collect(archive)


def test_a_launcher_that_hangs(archive: Archive, launcher: Callable[[str], None]) -> None:
    launcher("import time; time.sleep(30)")
    with pytest.raises(EvidenceError, match=r"sft-1 is incomplete: collecting it took longer than 0.3 s. .*/debug has"):
        collect(archive, timeout=0.3)
