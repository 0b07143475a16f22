from __future__ import annotations

import io
import os
import shutil
import tarfile
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.argus.verl.plugins.action import job_fetch
from ansible_collections.argus.verl.plugins.action.job_fetch import differs, unpack
from ansible_collections.argus.verl.plugins.modules.job_fetch import bundle


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    made = tmp_path / "jobs" / "grpo-1"
    for name, text in {
        "status.json": '{"state": "RUNNING"}',
        "logs/driver.log": "step 1\n",
        "logs/metrics-1.jsonl": "{}\n",
        "config/.job_spec.json.17": "half",
        "checkpoints/global_step_1/model.pt": "weights",
    }.items():
        (made / name).parent.mkdir(parents=True, exist_ok=True)
        (made / name).write_text(text)
        os.utime(made / name, (1_700_000_000, 1_700_000_000))
    (made / "debug").mkdir()
    (made / ".status.json.1").write_text("half writ")
    return made


def fetch(archive: Path, target: Path, change: bool = True, checkpoints: bool = False) -> int:
    file = archive.parent / "bundle.tar.gz"
    bundle(archive, checkpoints, str(file))
    return unpack(str(file), target, change)


def files(target: Path) -> list[str]:
    return sorted(str(path.relative_to(target)) for path in target.rglob("*") if path.is_file())


def test_a_first_fetch_has_everything_except_checkpoints(archive: Path, tmp_path: Path) -> None:
    target = tmp_path / "artifacts" / "grpo-1"
    assert fetch(archive, target) == 3
    assert files(target) == ["logs/driver.log", "logs/metrics-1.jsonl", "status.json"]
    assert (target / "logs" / "driver.log").read_text() == "step 1\n"
    assert (target / "status.json").stat().st_mtime == 1_700_000_000


def test_checkpoints_are_fetched_on_request(archive: Path, tmp_path: Path) -> None:
    target = tmp_path / "artifacts"
    fetch(archive, target)
    assert fetch(archive, target, checkpoints=True) == 1
    assert (target / "checkpoints" / "global_step_1" / "model.pt").read_text() == "weights"


def test_a_second_fetch_has_what_changed(archive: Path, tmp_path: Path) -> None:
    target = tmp_path / "artifacts"
    fetch(archive, target)
    (target / "logs" / "metrics-1.jsonl").chmod(0o400)
    assert fetch(archive, target) == 0
    (archive / "logs" / "driver.log").write_text("step 1\nstep 2\n")
    (archive / "debug" / "stack.txt").write_text("stack")
    # The same size, another time.
    (archive / "status.json").write_text('{"state": "STOPPED"}')
    assert fetch(archive, target) == 3
    assert (target / "logs" / "driver.log").read_text() == "step 1\nstep 2\n"
    assert (target / "status.json").read_text() == '{"state": "STOPPED"}'
    assert fetch(archive, target) == 0


def test_nothing_is_written_in_check_mode(archive: Path, tmp_path: Path) -> None:
    target = tmp_path / "artifacts"
    assert fetch(archive, target, change=False) == 3
    assert not target.exists()


def test_other_files_in_the_directory_stay(archive: Path, tmp_path: Path) -> None:
    target = tmp_path / "artifacts"
    target.mkdir()
    (target / "notes.txt").write_text("mine")
    fetch(archive, target)
    assert (target / "notes.txt").read_text() == "mine"


def hostile(file: Path, *members: tuple[str, bytes, str]) -> str:
    with tarfile.open(file, "w:gz") as tar:
        for name, kind, link in members:
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, link
            member.size = 4 if kind == tarfile.REGTYPE else 0
            tar.addfile(member, io.BytesIO(b"evil"))
    return str(file)


@pytest.mark.parametrize(
    "members",
    [
        [("../evil", tarfile.REGTYPE, "")],
        [("logs/../../evil", tarfile.REGTYPE, "")],
        [("/tmp/evil", tarfile.REGTYPE, "")],
        [("out", tarfile.SYMTYPE, "../.."), ("out/evil", tarfile.REGTYPE, "")],
        [("passwd", tarfile.SYMTYPE, "/etc/passwd")],
        [("fifo", tarfile.FIFOTYPE, "")],
        # One bad member is enough to refuse the whole bundle.
        [("good", tarfile.REGTYPE, ""), ("../evil", tarfile.REGTYPE, "")],
    ],
)
def test_a_bundle_cannot_write_elsewhere(tmp_path: Path, members: list[tuple[str, bytes, str]]) -> None:
    file = hostile(tmp_path / "bundle.tar.gz", *members)
    target = tmp_path / "artifacts" / "grpo-1"
    with pytest.raises(ValueError, match="which is not a regular file below the archive"):
        unpack(file, target, change=True)
    assert files(tmp_path) == ["bundle.tar.gz"]


def test_which_files_differ(tmp_path: Path) -> None:
    there = tmp_path / "file"
    member = tarfile.TarInfo("file")
    member.size, member.mtime = 3, 1000
    assert differs(member, there)
    there.write_text("abc")
    os.utime(there, (1000.75, 1000.75))
    assert not differs(member, there)
    os.utime(there, (1001, 1001))
    assert differs(member, there)
    there.write_text("abcd")
    os.utime(there, (1000, 1000))
    assert differs(member, there)
    assert differs(member, tmp_path)


class Task:
    check_mode = False
    async_val = 0

    def __init__(self, **arguments: Any) -> None:
        self.args = arguments


class Connection:
    """A machine whose files are here."""

    def fetch_file(self, remote: str, local: str) -> None:
        shutil.copyfile(remote, local)


def fetched(
    monkeypatch: pytest.MonkeyPatch, archive: Path, **arguments: Any
) -> tuple[dict[str, Any], list[str], list[str]]:
    """The result of the action plugin, the modules that it ran, and the files that it removed."""
    action = job_fetch.ActionModule.__new__(job_fetch.ActionModule)
    action._task, action._connection = Task(**arguments), Connection()
    ran: list[str] = []
    removed: list[str] = []

    def execute(name: str, _arguments: dict[str, Any], **_more: Any) -> dict[str, Any]:
        ran.append(name)
        bundle(archive, False, str(archive.parent / "bundle.tar.gz"))
        return {"changed": False, "bundle": str(archive.parent / "bundle.tar.gz"), "archive": str(archive)}

    action._execute_module = execute
    action._remove_tmp_path = lambda path, force: removed.append(path)
    monkeypatch.setattr(job_fetch.ActionBase, "run", lambda *_arguments: {})
    return action.run(None, {}), ran, removed


def test_the_action_plugin(monkeypatch: pytest.MonkeyPatch, archive: Path, tmp_path: Path) -> None:
    here = tmp_path / "here"
    result, _ran, removed = fetched(monkeypatch, archive, submission_id="grpo-1", dest=str(here))
    assert (result["changed"], result["files"], result["path"]) == (True, 3, str(here / "grpo-1"))
    assert (result["job"]["state"], result["job"]["archive"]) == ("RUNNING", str(here / "grpo-1"))
    assert result["job"]["log"] == []
    assert removed == [str(archive.parent / "bundle.tar.gz")]


@pytest.mark.parametrize("submission_id", ["../grpo-1", "..", "a/b", "/etc", "", None])
def test_an_id_does_not_lead_out_of_the_directory(
    monkeypatch: pytest.MonkeyPatch, archive: Path, tmp_path: Path, submission_id: str | None
) -> None:
    result, ran, _removed = fetched(monkeypatch, archive, submission_id=submission_id, dest=str(tmp_path / "here"))
    assert result["failed"]
    assert ran == []
    expected = "is not a submission id" if submission_id else "No job was named. Pass -e submission_id=ID"
    assert expected in result["msg"]
