from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.argus.verl.plugins.action import job_archive
from ansible_collections.argus.verl.plugins.module_utils.argus.common.findings import Finding
from ansible_collections.argus.verl.plugins.module_utils.argus.jobs.bundle import Limits, limits, pack
from ansible_collections.argus.verl.plugins.plugin_utils import action
from ansible_collections.argus.verl.plugins.plugin_utils.program_call import Answer, ProgramError

SIZE = limits(False)


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    made = tmp_path / "jobs" / "grpo-1"
    for name, text in {
        "status.json": '{"state": "RUNNING"}',
        "logs/driver.log": "step 1\n",
        "debug/stack.txt": "stack",
    }.items():
        (made / name).parent.mkdir(parents=True, exist_ok=True)
        (made / name).write_text(text)
    return made


class Task:
    async_val = 0

    def __init__(self, arguments: dict[str, Any], check_mode: bool) -> None:
        self.args, self.check_mode = arguments, check_mode


class Head:
    """Packs an archive as the program does, and keeps what it was asked for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, archive: Path, answer: Answer | ProgramError | None) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.archive, self.answer = archive, answer
        monkeypatch.setattr(job_archive.ActionModule, "fetch", lambda task, *given: self.fetch(task.node, *given))
        monkeypatch.setattr(action.ActionBase, "run", lambda *_arguments: {})

    def fetch(self, node: Any, request: Any, local: str, *limit: float) -> Answer:
        self.calls.append((node.name, request, *limit))
        if isinstance(self.answer, ProgramError):
            raise self.answer
        with Path(local).open("wb") as file:
            skipped = pack(self.archive, request["checkpoints"], SIZE, file)
        return self.answer or Answer(True, False, [], {"archive": "/srv/jobs/grpo-1", "skipped": skipped})


def fetched(
    monkeypatch: pytest.MonkeyPatch,
    archive: Path,
    answer: Answer | ProgramError | None = None,
    check_mode: bool = False,
    **arguments: Any,
) -> tuple[dict[str, Any], list[tuple[Any, ...]]]:
    """The result of the action, and what it asked the head for."""
    head = Head(monkeypatch, archive, answer)
    fetch = job_archive.ActionModule.__new__(job_archive.ActionModule)
    given = {"submission_id": "grpo-1", "dest": str(archive.parents[1] / "here"), **arguments}
    fetch._task = Task(given, check_mode)
    return fetch.run(None, {"inventory_hostname": "head"}), head.calls


def test_a_fetch(monkeypatch: pytest.MonkeyPatch, archive: Path, tmp_path: Path) -> None:
    result, calls = fetched(monkeypatch, archive)
    target = tmp_path / "here" / "grpo-1"
    job, page = result.pop("job"), result.pop("page")
    assert page == str(target / "report.html") and (target / "report.html").read_text().startswith("<!doctype html>")
    assert (job["state"], job["archive"], job["log"]) == ("RUNNING", str(target), [])
    expected = {"changed": True, "files": 3, "path": str(target), "archive": "/srv/jobs/grpo-1", "left_out": []}
    assert result == expected
    request = {"submission_id": "grpo-1", "checkpoints": False}
    assert calls == [("head", request, SIZE.bundle, pytest.approx(60 + 8 * 1024 / 10))]
    # -e passes text.
    for given, is_whole in (("no", False), ("true", True)):
        ((_node, request, most, _seconds),) = fetched(monkeypatch, archive, check_mode=True, checkpoints=given)[1]
        assert (request["checkpoints"], most) == (is_whole, limits(is_whole).bundle)
    # A page that a job has made, with the time of one of ours.
    times = (target / "report.html").stat()
    (target / "report.html").write_text("forged")
    os.utime(target / "report.html", ns=(times.st_atime_ns, times.st_mtime_ns))
    result, _calls = fetched(monkeypatch, archive)
    assert (result["changed"], result["files"]) == (False, 0)
    assert (target / "report.html").read_text().startswith("<!doctype html>")


def test_what_is_left_out_and_broken_does_not_fail_fetch(
    monkeypatch: pytest.MonkeyPatch, archive: Path, tmp_path: Path
) -> None:
    warned: list[str] = []
    monkeypatch.setattr(job_archive.display, "warning", warned.append)
    (archive / "link").symlink_to("/etc/passwd")
    (archive / "status.json").write_text("[]")
    result, _calls = fetched(monkeypatch, archive, check_mode=True)
    assert (result["changed"], result["files"]) == (True, 3) and not (tmp_path / "here").exists()
    # A page that cannot be made.
    (tmp_path / "here" / "grpo-1" / "report.html").mkdir(parents=True)
    result, _calls = fetched(monkeypatch, archive)
    assert (result["files"], result["page"], result["job"]["state"]) == (3, "", "UNREADABLE")
    assert result["left_out"] == ["link: it is a link"] and len(warned) == 3


@pytest.mark.parametrize(
    ("asked", "archive_of_answer", "expected"),
    [
        ("po-1", "/srv/jobs/grpo-1", "grpo-1"),
        ("last", "/srv/jobs/grpo-1", "grpo-1"),
        # What a node answers chooses no other directory.
        ("grpo-1", "/srv/jobs/other", "grpo-1"),
        ("grpo-1", "/srv/jobs/../grpo-1/..", "grpo-1"),
        ("last", 7, "last"),
    ],
)
def test_a_job_is_fetched_by_its_whole_id(
    monkeypatch: pytest.MonkeyPatch, archive: Path, tmp_path: Path, asked: str, archive_of_answer: Any, expected: str
) -> None:
    answer = Answer(True, False, [], {"archive": archive_of_answer, "skipped": []})
    result, _calls = fetched(monkeypatch, archive, answer, submission_id=asked)
    assert result["path"] == str(tmp_path / "here" / expected)


@pytest.mark.parametrize("skipped", [7, None, {"a": 1}, "text", [7, None, "\x1b[2J\n"]])
def test_the_root_of_a_node_may_answer_anything(
    monkeypatch: pytest.MonkeyPatch, archive: Path, skipped: object
) -> None:
    answer = Answer(True, False, [], {"archive": ["\x1b"], "skipped": skipped})
    result, _calls = fetched(monkeypatch, archive, answer)
    assert result["left_out"] == (["7", "None", r"\x1b[2J\n"] if isinstance(skipped, list) else [])
    assert result["archive"].isprintable()


def test_limits_are_checked_on_the_controller_as_well(
    monkeypatch: pytest.MonkeyPatch, archive: Path, tmp_path: Path
) -> None:
    (archive / "debug" / "large").write_bytes(b"x" * ((1 << 20) - 1))
    (archive / "debug" / "more").write_bytes(b"x" * (1 << 19))
    monkeypatch.setattr(job_archive, "limits", lambda _checkpoints: Limits(1 << 20, 1 << 20))
    result, _calls = fetched(monkeypatch, archive)
    assert (result["failed"], result["changed"]) == (True, False) and "debug/more" in result["msg"]
    assert not (tmp_path / "here").exists()


def test_a_refusal_and_a_failure(monkeypatch: pytest.MonkeyPatch, archive: Path, tmp_path: Path) -> None:
    refusal = Answer(False, False, [Finding("submission_id", "There is no job 'grpo-1' in /srv/jobs.", "")], {})
    result, _calls = fetched(monkeypatch, archive, refusal)
    assert result == {"failed": True, "changed": False, "msg": "There is no job 'grpo-1' in /srv/jobs."}
    result, _calls = fetched(monkeypatch, archive, ProgramError("container head is paused"))
    assert result["failed"] and result["msg"] == "The archive was not fetched: container head is paused."
    # An id does not lead out of the directory.
    for submission_id in ("../grpo-1", "..", "a/b", "/etc", "", None):
        result, calls = fetched(monkeypatch, archive, submission_id=submission_id)
        assert result["failed"] and calls == []
    assert not (tmp_path / "here").exists()
