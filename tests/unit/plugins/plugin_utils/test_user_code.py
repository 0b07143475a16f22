from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from ansible_collections.argus.verl.plugins.plugin_utils import staging_call
from ansible_collections.argus.verl.plugins.plugin_utils.staging_call import edited_findings, targets


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
    assert finding.what == (f"is not the same as on this machine: {rewards}/one.py changed after stage.yml copied it")
    assert finding.todo.startswith("run stage.yml")


def test_all_files_that_differ_are_named_at_once(rewards: Path) -> None:
    used = {"user/code/one.py": "x", "user/code/graders/digits.py": "x"}
    (finding,) = edited_findings([f"{rewards}/"], used)
    assert f"{rewards}/graders/digits.py, {rewards}/one.py changed" in finding.what


@pytest.mark.parametrize("used", [{}, {"user/code/one.py": hash_of("one")}, {"user/code/other.py": "x"}])
def test_equal_files_and_those_that_the_reward_does_not_use(rewards: Path, used: dict[str, str]) -> None:
    assert edited_findings([str(rewards / "one.py"), str(rewards / "missing.py")], used) == []


def test_without_a_reward_no_directory_is_walked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging_call, "targets", None)
    assert edited_findings(["/"], {}) == []


def test_where_the_files_of_a_source_are_copied(rewards: Path) -> None:
    def names(source: str) -> list[str]:
        return sorted(name for name, _file in targets(source))

    assert names(f"{rewards}/one.py") == ["user/code/one.py"]
    assert names(f"{rewards}/") == ["user/code/graders/digits.py", "user/code/notes.md", "user/code/one.py"]
    assert names(str(rewards)) == [f"user/code/rewards/{name}" for name in ("graders/digits.py", "notes.md", "one.py")]
    assert names(f"{rewards}/none") == []
