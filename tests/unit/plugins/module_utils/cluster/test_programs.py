"""Real programs that answer, fail and hang."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from ansible_collections.argus.verl.plugins.module_utils.cluster.engine import run_program


def test_output_and_exit_code() -> None:
    assert run_program(["sh", "-c", "echo out; echo err >&2; exit 3"], 30) == (3, "out\n", "err\n")
    assert run_program(["sh", "-c", "printf '\\377'; cat"], 30) == (0, "\ufffd", "")


def test_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/bin")
    assert run_program(["/bin/sh", "-c", "echo $PATH $LC_ALL"], 30)[1] == "/bin:/usr/local/sbin:/usr/sbin:/sbin C\n"


def test_programs_that_cannot_start(tmp_path: Path) -> None:
    assert run_program(["argus-verl-no-such-program"], 30) == (127, "", "argus-verl-no-such-program: not found")
    (tmp_path / "file").write_text("")
    code, out, err = run_program([str(tmp_path / "file")], 30)
    assert (code, out) == (126, "")
    assert "Permission denied" in err


@pytest.mark.skipif(os.geteuid() != 0, reason="another user is needed")
def test_a_directory_on_the_path_that_cannot_be_read_hides_no_program(tmp_path: Path) -> None:
    """As after su from a root whose PATH has its own programs."""
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    (closed / "script").write_text("")
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.setuid(65534)
        os.environ["PATH"] = f"{closed}:/bin"
        os.write(writer, f"{run_program(['argus-verl-none'], 30)[0]} {run_program(['true'], 30)[0]}".encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writer)
    with os.fdopen(reader) as answer:
        assert answer.read() == "127 0"


def test_a_program_that_hangs_is_killed_with_those_that_it_started(tmp_path: Path) -> None:
    script = f"sleep 600 & echo $! > {tmp_path}/child; sleep 600"
    assert run_program(["sh", "-c", script], 0.5) == (124, "", "no answer within 0 s")
    child = int((tmp_path / "child").read_text())
    for _attempt in range(200):
        if not Path(f"/proc/{child}").exists() or ") Z " in Path(f"/proc/{child}/stat").read_text():
            return
        time.sleep(0.05)
    raise AssertionError("its child still runs")


def test_nobody_waits_for_what_cannot_be_killed(tmp_path: Path) -> None:
    """A process in another session keeps the pipe open, as one that hangs in the kernel does."""
    script = f"setsid sh -c 'echo $$ > {tmp_path}/pid; exec sleep 60' & sleep 600"
    assert run_program(["sh", "-c", script], 0.5)[0] == 124
    pid = int((tmp_path / "pid").read_text())
    # It still runs: we have not waited for it.
    assert Path(f"/proc/{pid}/comm").read_text() == "sleep\n"
    os.kill(pid, 9)
