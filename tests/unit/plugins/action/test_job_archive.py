from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.argus.verl.plugins.action import job_archive
from ansible_collections.argus.verl.plugins.module_utils.argus.common.findings import Finding
from ansible_collections.argus.verl.plugins.module_utils.argus.jobs.bundle import Limits, bundle_limits, pack
from ansible_collections.argus.verl.plugins.plugin_utils import action
from ansible_collections.argus.verl.plugins.plugin_utils.program_answer import Answer, ProgramError

SIZE = bundle_limits(False)


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


Fetch = Callable[..., tuple[dict[str, Any], list[tuple[Any, ...]]]]


@pytest.fixture
def fetch(monkeypatch: pytest.MonkeyPatch, archive: Path) -> Fetch:
    """Runs the action with a head that packs the archive, or fails; the result, and the calls of the head."""

    def fetch(answer: Answer | ProgramError | None = None, check_mode: bool = False, **arguments: Any) -> Any:
        calls: list[tuple[Any, ...]] = []

        def packed(task: Any, request: Any, local: str, *limit: float) -> Answer:
            calls.append((task.node.name, request, *limit))
            if isinstance(answer, ProgramError):
                raise answer
            with Path(local).open("wb") as file:
                skipped = pack(archive, request["checkpoints"], SIZE, file)
            return answer or Answer(True, False, [], {"archive": "/srv/jobs/grpo-1", "skipped": skipped})

        monkeypatch.setattr(job_archive.ActionModule, "fetch", packed)
        monkeypatch.setattr(action.ActionBase, "run", lambda *_arguments: {})
        task_args = {"submission_id": "grpo-1", "dest": str(archive.parents[1] / "here"), **arguments}
        task = SimpleNamespace(check_mode=check_mode, args=task_args, async_val=0, delegate_to=None)
        module = job_archive.ActionModule(task, None, None, None, None, None)
        return module.run(None, {"inventory_hostname": "head"}), calls

    return fetch


def test_a_fetch(fetch: Fetch, tmp_path: Path) -> None:
    result, calls = fetch()
    target = tmp_path / "here" / "grpo-1"
    job, page = result.pop("job"), target / "report.html"
    assert (job["state"], job["archive"], job["log"]) == ("RUNNING", str(target), [])
    expected = {"changed": True, "files": 3, "path": str(target), "archive": "/srv/jobs/grpo-1", "left_out": []}
    assert result == {**expected, "page": str(page)} and page.read_text().startswith("<!doctype html>")
    request = {"submission_id": "grpo-1", "checkpoints": False}
    assert calls == [("head", request, SIZE.bundle, pytest.approx(60 + 8 * 1024 / 10))]
    # -e passes text.
    for text, is_whole in (("no", False), ("true", True)):
        ((_node, request, most, _seconds),) = fetch(check_mode=True, checkpoints=text)[1]
        assert (request["checkpoints"], most) == (is_whole, bundle_limits(is_whole).bundle)
    # A page that a job has forged, with the time of a real one.
    times = page.stat()
    page.write_text("forged")
    os.utime(page, ns=(times.st_atime_ns, times.st_mtime_ns))
    result, _calls = fetch()
    assert (result["changed"], result["files"], page.read_text()[:15]) == (False, 0, "<!doctype html>")


def test_what_is_left_out_and_broken_does_not_fail_fetch(
    fetch: Fetch, archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warned: list[str] = []
    monkeypatch.setattr(job_archive.display, "warning", warned.append)
    (archive / "link").symlink_to("/etc/passwd")
    (archive / "status.json").write_text("[]")
    result, _calls = fetch(check_mode=True)
    assert (result["changed"], result["files"]) == (True, 3) and not (tmp_path / "here").exists()
    # A page that cannot be made.
    (tmp_path / "here" / "grpo-1" / "report.html").mkdir(parents=True)
    result, _calls = fetch()
    assert (result["files"], result["page"], result["job"]["state"]) == (3, "", "UNREADABLE")
    assert result["left_out"] == ["link: it is a link"] and len(warned) == 3


@pytest.mark.parametrize(
    ("submission_id", "answered", "skipped", "expected"),
    [
        ("po-1", "/srv/jobs/grpo-1", [], "grpo-1"),
        ("last", "/srv/jobs/grpo-1", [7, None, "\x1b[2J\n"], "grpo-1"),
        # The answer of a node cannot choose another directory.
        ("grpo-1", "/srv/jobs/other\x1b", None, "grpo-1"),
        ("grpo-1", "/srv/jobs/../grpo-1/..", {"a": 1}, "grpo-1"),
        ("last", 7, 7, "last"),
        ("last", ["\x1b"], "text", "last"),
    ],
)
def test_the_root_of_a_node_may_answer_anything(
    fetch: Fetch, tmp_path: Path, submission_id: str, answered: Any, skipped: object, expected: str
) -> None:
    answer = Answer(True, False, [], {"archive": answered, "skipped": skipped})
    result, _calls = fetch(answer, submission_id=submission_id)
    assert result["path"] == str(tmp_path / "here" / expected)
    assert result["left_out"] == (["7", "None", r"\x1b[2J\n"] if isinstance(skipped, list) and skipped else [])
    assert result["archive"].isprintable()


def test_limits_are_checked_on_the_controller_as_well(
    fetch: Fetch, archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (archive / "debug" / "large").write_bytes(b"x" * ((1 << 20) - 1))
    (archive / "debug" / "more").write_bytes(b"x" * (1 << 19))
    monkeypatch.setattr(job_archive, "bundle_limits", lambda _checkpoints: Limits(1 << 20, 1 << 20))
    result, _calls = fetch()
    assert (result["failed"], result["changed"]) == (True, False) and not (tmp_path / "here").exists()


def test_a_refusal_and_a_failure(fetch: Fetch, tmp_path: Path) -> None:
    refusal = Answer(False, False, [Finding("submission_id", "There is no job.", "")], {})
    assert fetch(refusal)[0] == {"failed": True, "changed": False, "msg": "There is no job."}
    result, _calls = fetch(ProgramError("container head is paused"))
    assert result["failed"] and "container head is paused" in result["msg"]
    # An id does not lead out of the directory.
    for submission_id in ("../grpo-1", "..", "a/b", "/etc", "", None):
        result, calls = fetch(submission_id=submission_id)
        assert result["failed"] and calls == []
    assert not (tmp_path / "here").exists()
