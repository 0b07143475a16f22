"""Real programs that answer, fail and hang."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from ansible_collections.argus.verl.plugins.module_utils.cluster.engine import run_program
from real_processes import alive, until


def test_output_and_exit_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_program(["sh", "-c", "echo out; echo err >&2; exit 3"], 30) == (3, "out\n", "err\n")
    assert run_program(["sh", "-c", "printf '\\377'; cat"], 30) == (0, "\ufffd", "")
    assert run_program(["argus-verl-no-such-program"], 30)[0] == 127
    (tmp_path / "file").write_text("")
    assert run_program([str(tmp_path / "file")], 30)[0] == 126
    monkeypatch.setenv("PATH", "/bin")
    assert run_program(["/bin/sh", "-c", "echo $PATH $LC_ALL"], 30)[1] == "/bin:/usr/local/sbin:/usr/sbin:/sbin C\n"


def test_a_program_that_hangs_is_killed_with_those_that_it_started(tmp_path: Path) -> None:
    """A process in another session keeps the pipe open, as one that hangs in the kernel does: nobody waits for it."""
    script = (
        f"sleep 600 & echo $! > {tmp_path}/child; setsid sh -c 'echo $$ > {tmp_path}/pid; exec sleep 60' & sleep 600"
    )
    assert run_program(["sh", "-c", script], 0.5)[0] == 124
    child, pid = (int((tmp_path / name).read_text()) for name in ("child", "pid"))
    assert Path(f"/proc/{pid}/comm").read_text() == "sleep\n"
    os.kill(pid, 9)
    until(lambda: not alive(child))
