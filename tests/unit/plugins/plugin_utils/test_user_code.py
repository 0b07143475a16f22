from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from ansible_collections.argus.verl.plugins.plugin_utils.staging_call import edited_findings


def hash_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@pytest.fixture
def rewards(tmp_path: Path) -> Path:
    directory = tmp_path / "rewards"
    (directory / "graders").mkdir(parents=True)
    (directory / "one.py").write_text("one")
    (directory / "graders" / "digits.py").write_text("digits")
    (directory / "notes.md").write_text("notes")
    return directory


def test_an_edited_file_that_was_not_staged(rewards: Path) -> None:
    used = {"user/code/one.py": hash_of("before"), "user/code/graders/digits.py": hash_of("digits")}
    (finding,) = edited_findings([str(rewards / "one.py"), str(rewards / "graders")], used)
    assert (finding.where, finding.severity) == ("files", "warning")
    assert finding.problem == (
        f"is not the same as on this machine: {rewards}/one.py changed after stage.yml copied it"
    )
    assert finding.remedy.startswith("run stage.yml")


@pytest.mark.parametrize("used", [{}, {"user/code/one.py": hash_of("one")}, {"user/code/other.py": "x"}])
def test_equal_files_and_those_that_the_reward_does_not_use(rewards: Path, used: dict[str, str]) -> None:
    assert edited_findings([str(rewards / "one.py"), str(rewards / "missing.py")], used) == []
