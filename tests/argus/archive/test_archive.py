from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import stat
from typing import Any

import pytest
from archive_files import lines_of

from argus.archive.archive import Archive
from argus.io import reading
from argus.io.reading import UnreadableError


def test_the_status_grows_and_every_change_is_an_event(archive: Archive) -> None:
    archive.set_status("SUBMITTED", workload="grpo")
    archive.set_status("RUNNING", driver={"host": "worker-0"})
    archive.event("note", text="größer")
    archive.set_status("FAILED", reason="exit code 1")
    status = archive.status_json()
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", status.pop("updated_at"))
    expected = {"submission_id": "grpo-1", "workload": "grpo", "driver": {"host": "worker-0"}}
    assert status == {**expected, "state": "FAILED", "reason": "exit code 1"}
    events = lines_of(archive, "events.jsonl")
    times = [event.pop("time") for event in events]
    assert times == sorted(times) and len(events) == 4
    assert events[2:] == [{"event": "note", "text": "größer"}, {"event": "FAILED", "reason": "exit code 1"}]


def test_a_write_that_fails_leaves_what_was_there(archive: Archive) -> None:
    archive.write_text("config/a.txt", "before")
    with pytest.raises(FileExistsError):
        Archive(archive.path).reserve()
    with pytest.raises(UnicodeEncodeError):
        archive.write_text("config/a.txt", "x" * 100_000 + "\ud800")
    assert (archive.path / "config" / "a.txt").read_text() == "before"


def test_members_of_the_group_can_read_and_others_cannot(archive: Archive) -> None:
    before = os.umask(0)
    try:
        new = Archive(archive.jobs / "grpo-2")
        new.reserve()
        new.write_text("config/deep/er/a.py", "")
        new.set_status("RUNNING")
        new.write_heartbeat("steward.json", time=1)
        new.ask_to_stop()
    finally:
        os.umask(before)
    modes = {path: stat.S_IMODE(path.lstat().st_mode) for path in (new.path, *new.path.rglob("*"))}
    assert {mode for path, mode in modes.items() if path.is_dir()} == {0o750}
    assert {mode for path, mode in modes.items() if path.is_file()} == {0o640}
    assert len(modes) == 12


def test_a_read_is_repeated_while_a_file_system_hangs(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    archive.set_status("RUNNING")
    errors = [errno.ESTALE, errno.EIO, errno.ETIMEDOUT]
    read = reading.read_once

    def flaky(*arguments: Any) -> bytes:
        if errors:
            raise UnreadableError("x", "cannot be read") from OSError(errors.pop(), "again")
        return read(*arguments)

    monkeypatch.setattr(reading, "read_once", flaky)
    monkeypatch.setattr("time.sleep", lambda _seconds: None)
    assert archive.read_status().state == "RUNNING"
    assert errors == []


def test_the_last_step(archive: Archive) -> None:
    assert archive.last_step() == 0
    for attempt, steps in ((1, (1, 2, 3)), (2, (2,)), (10, ())):
        lines = [json.dumps({"step": step, "data": {}}) + "\n" for step in steps]
        archive.metrics_file(attempt).write_text("".join(lines) + '{"step": 9, "da' * (attempt == 2))
    assert archive.last_step() == 2


@pytest.mark.parametrize("half", [b'{"time": "2026', '{"reason": "ä'.encode()[:-1]])
def test_a_line_after_half_a_line_is_not_lost(archive: Archive, half: bytes) -> None:
    archive.event("FIRST")
    with (archive.path / "events.jsonl").open("ab") as file:
        file.write(half)
    assert [event["event"] for event in lines_of(archive, "events.jsonl")] == ["FIRST"]
    archive.event("NEXT")
    # A job that locks a file keeps no line out of it.
    with (archive.path / "events.jsonl").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        archive.event("LAST")
    assert [event["event"] for event in lines_of(archive, "events.jsonl")] == ["FIRST", "NEXT", "LAST"]
    assert (archive.path / "events.jsonl").read_bytes().count(b"\n") == 4


def test_a_reason_is_one_line(archive: Archive) -> None:
    archive.set_status("FAILED", reason="word\n\t" * 200)
    cut = archive.read_status().reason
    assert len(cut) <= 400 and set(cut.split()) == {"word", "…"} and cut.isprintable()
    archive.set_status("FAILED", reason=cut)
    assert archive.read_status().reason == cut
