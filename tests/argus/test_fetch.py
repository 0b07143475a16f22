"""argus fetch as people and the controller run it, in a process of its own."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from argus.archive.archive import Archive

Run = Callable[..., "subprocess.CompletedProcess[bytes]"]


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    made = Archive(tmp_path / "jobs" / "sft-1")
    made.reserve()
    made.set_status("RUNNING", workload="sft")
    made.driver_log.write_text("step 1\n")
    for name in ("checkpoints/global_step_1/model.pt", "debug/large"):
        (made.path / name).parent.mkdir(parents=True, exist_ok=True)
        (made.path / name).write_bytes(os.urandom((1 << 20) + 1))
    (made.path / "link").symlink_to("/etc/passwd")
    (made.path / "report.html").write_text("of the job")
    return made


@pytest.fixture
def run(tmp_path: Path) -> Run:
    def run(*arguments: str, request: dict[str, Any] | None = None, **options: Any) -> Any:
        command = [sys.executable, "-m", "argus", "fetch", *arguments, "--shared-root", str(tmp_path), "--address", ""]
        command += ["--json"] if request is not None else []
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
        return subprocess.run(command, input=json.dumps(request).encode(), check=False, **options)

    return run


def names(bundle: bytes) -> list[str]:
    with tarfile.open(fileobj=io.BytesIO(bundle)) as tar:
        return tar.getnames()


def test_people_get_a_file_and_the_names_of_what_is_not_in_it(archive: Archive, run: Run) -> None:
    os.truncate(archive.path / "debug/large", 3 << 30)
    done = run("sft-1")
    assert (done.returncode, {"logs/driver.log", "status.json"} - {*names(done.stdout)}) == (0, set())
    skipped = [line.split(": ")[:2] for line in done.stderr.decode().splitlines()]
    assert skipped == [["skipped", "debug/large"], ["skipped", "link"]]
    assert "report.html" not in names(done.stdout)
    (archive.path / "debug/large").unlink()
    assert "checkpoints/global_step_1/model.pt" in names(run("sft-1", "--checkpoints").stdout)


def answer(done: subprocess.CompletedProcess[bytes]) -> dict[str, Any]:
    decoded: dict[str, Any] = json.loads(done.stderr.splitlines()[-1])
    return decoded


def test_the_path_is_that_on_the_machines(
    archive: Archive, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ARGUS_VERL_SHARED_ROOT", "/srv/mvp")
    monkeypatch.setenv("ARGUS_VERL_SHARED_ROOT_MOUNT", str(tmp_path))
    done = run(request={"submission_id": "sft-1"})
    assert answer(done)["result"] == {"archive": "/srv/mvp/jobs/sft-1", "skipped": ["link: it is a link"]}
    assert (done.returncode, "status.json" in names(done.stdout)) == (0, True)
    assert (run("../jobs/sft-1").returncode, run("../jobs/sft-1").stdout) == (1, b"")


def test_an_archive_that_cannot_be_written(archive: Archive, run: Run) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    for output, reason in ((os.open("/dev/full", os.O_WRONLY), "No space left on device"), (writing, "Broken pipe")):
        done = run(request={"submission_id": "sft-1"}, stdout=output)
        os.close(output)
        (finding,) = answer(done)["findings"]
        assert done.returncode == 1 and reason in finding["problem"]
