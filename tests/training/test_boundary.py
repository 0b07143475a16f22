"""What the playbooks do on machines, by their system calls.

No process of root opens a path below the shared root: jobs can write there, links included. In a node, only the program
is run.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from system import ENVIRONMENT, HEAD, REPO, SHARED_ROOT, Job, playbook_command

# What a process is, who it becomes, and which paths it names.
TRACED = "trace=%file,clone,clone3,fork,vfork,setuid,setreuid,setresuid"
LINE = re.compile(r"(?P<pid>\d+) +(?:<\.\.\. )?(?P<call>\w+)(?:\(| resumed>)(?P<rest>.*)")
BECOMES = re.compile(r"(?:\d+|-1), (?P<effective>\d+).*= 0$|(?P<only>\d+)\) += 0$")
CHILD = re.compile(r"= (?P<child>\d+)$")
# A path below a directory of the shared root, as it is, or relative to an open one.
BELOW = re.compile(rf"{re.escape(str(SHARED_ROOT))}/[^/\"<>]+(?:/|>, \")[^\"<>]*")

# A command in a node that runs.
ENTRY = re.compile(r'execve\("[^"]*/(?:docker|podman)", \["[^"]+", "exec", (?P<arguments>[^\]]*)\]')
PROGRAM = '"/usr/local/bin/argus"'


def entries(trace: Path) -> list[str]:
    """The arguments of commands that were run in nodes."""
    return [match["arguments"] for match in ENTRY.finditer(trace.read_text(errors="replace"))]


def paths_of_root(trace: Path) -> Iterator[str]:
    """The paths below directories of the shared root in system calls of processes whose user is root."""
    lines = [match for line in trace.read_text(errors="replace").splitlines() if (match := LINE.match(line))]
    # A child may be traced before its parent knows it.
    parents = {
        child["child"]: line["pid"]
        for line in lines
        if line["call"] in ("clone", "clone3", "fork", "vfork") and (child := CHILD.search(line["rest"]))
    }
    seen: set[str] = set()
    others: set[str] = set()
    for line in lines:
        pid, call, rest = line["pid"], line["call"], line["rest"]
        if pid not in seen and parents.get(pid) in others:
            others.add(pid)
        seen.add(pid)
        if call.startswith("set"):
            if (user := BECOMES.search(rest)) and int(user["effective"] or user["only"] or 0):
                others.add(pid)
        elif pid not in others and (path := BELOW.search(rest.partition(", [")[0] if call == "execve" else rest)):
            # execve does not open the arguments of the program.
            yield f"{call} {path[0]}"


def traced(trace: Path, command: Sequence[str]) -> list[str]:
    """Run a command; the paths that processes of root have named in it."""
    strace = ["strace", "--follow-forks", "--seccomp-bpf", "--decode-fds=path", "--quiet=all", "-e", TRACED]
    strace += ["-o", str(trace)]
    done = subprocess.run([*strace, *command], cwd=REPO, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return sorted(set(paths_of_root(trace)))


@pytest.mark.usefixtures("submit")  # the cluster
@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("strace"), reason="needs root and strace")
def test_root_opens_nothing_below_the_shared_root_and_only_the_program_enters_nodes(tmp_path: Path) -> None:
    job = Job(f"test-traced-{time.time_ns()}")
    jobspec = REPO / "inventories" / "dev" / "jobspecs" / "sft.yaml"
    names = ("cluster_up", "stage", "staged", "submit", "status", "logs", "debug_bundle", "stop", "fetch")
    variables = {"jobspec": str(jobspec), "artifacts_dir": str(tmp_path), "staging_verify": "full"}
    command = playbook_command(*names, submission_id=job.submission_id, **variables)
    assert traced(tmp_path / "trace", command) == []
    assert job.wait("STOPPED") and (tmp_path / job.submission_id / "status.json").exists()
    commands = entries(tmp_path / "trace")
    assert commands and [entry for entry in commands if PROGRAM not in entry] == []
    # Another command would be noticed.
    traced(tmp_path / "trace", ["docker", "exec", HEAD, "true"])
    assert [entry for entry in entries(tmp_path / "trace") if PROGRAM not in entry]
    # A path that root opens would be noticed, and only such a path.
    status = str(job.archive.path / "status.json")
    assert f"openat {status}" in traced(tmp_path / "trace", ["cat", status])
    assert traced(tmp_path / "trace", ["setpriv", "--reuid=61000", "sh", "-c", f"cat {status} || true"]) == []
