from __future__ import annotations

import hashlib
from pathlib import Path

from ansible_collections.argus.verl.plugins.plugin_utils.controller_files import edited_file_warnings


def hash_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def test_files_that_were_edited_after_they_were_staged(tmp_path: Path) -> None:
    (tmp_path / "graders").mkdir()
    for name in ("one.py", "graders/digits.py", "notes.md"):
        (tmp_path / name).write_text(name)
    used = {"user/code/one.py": hash_of("before"), "user/code/graders/digits.py": hash_of("graders/digits.py")}
    (finding,) = edited_file_warnings([str(tmp_path / "one.py"), str(tmp_path / "graders")], used)
    assert (finding.where, finding.severity) == ("files", "warning")
    assert f"{tmp_path}/one.py" in finding.problem and "stage.yml" in finding.remedy
    # Equal files, and those that the reward does not use.
    for same in ({}, {"user/code/one.py": hash_of("one.py")}, {"user/code/other.py": "x"}):
        assert edited_file_warnings([str(tmp_path / "one.py"), str(tmp_path / "missing.py")], same) == []
