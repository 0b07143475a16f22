"""The connection with programs in place of srun; molecule/slurm has the real one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible import constants
from ansible.errors import AnsibleConnectionFailure, AnsibleError, AnsibleFileNotFound
from ansible.playbook.play_context import PlayContext
from ansible_collections.argus.verl.plugins.connection import srun
from ansible_collections.argus.verl.plugins.plugin_utils.streams import READ_PART_BYTES, WRITE_PART_BYTES

NAME = "argus.verl.srun"
# Shows its options and its environment in a file, and runs what a relay would pass on.
SRUN = """#!/bin/sh
printf '%s\\n' "$@" > '{log}'
env > '{log}.env'
while [ "$1" != -c ]; do shift; done
shift 3
exec "$@"
"""


@pytest.fixture
def connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    program = tmp_path / "bin" / "srun"
    program.parent.mkdir()
    program.write_text(SRUN.format(log=tmp_path / "asked"))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    options = yaml.safe_load(srun.DOCUMENTATION)["options"]
    constants.config.initialize_plugin_configuration_definitions("connection", NAME, options)
    made = srun.Connection(PlayContext())
    made._load_name = NAME
    made.set_options(var_options={"slurm_job_id": 7, "slurm_node": "gpu-0", "slurm_component": 1})
    return made


def test_a_command_runs_on_the_host_in_a_step_of_the_job(connection: Any, tmp_path: Path) -> None:
    assert connection.exec_command("cat; echo said >&2; exit 3", b"given") == (3, b"given", b"said\n")
    arguments = (tmp_path / "asked").read_text().splitlines()
    assert arguments[:5] == ["--jobid=7", "--het-group=1", "--nodes=1", "--ntasks=1", "--nodelist=gpu-0"]
    assert "--overlap" in arguments
    assert arguments[arguments.index("-c") - 2] == "python3"
    # A job of one component.
    connection.set_options(var_options={"slurm_job_id": 7, "slurm_node": "gpu-0", "slurm_python": "/usr/bin/python3.9"})
    connection.exec_command("true")
    text = (tmp_path / "asked").read_text()
    assert "--het-group" not in text and "\n/usr/bin/python3.9\n-I\n-c\n" in text


def test_the_environment_of_the_controller_stays_there(
    connection: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Inside of a job, its variables would be options."""
    for name in ("SLURM_NTASKS", "SLURM_JOB_ID", "SRUN_DEBUG", "PYTHONPATH"):
        monkeypatch.setenv(name, "7")
    monkeypatch.setenv("SLURM_CONF", "/etc/slurm.conf")
    connection.exec_command("true")
    names = {line.partition("=")[0] for line in (tmp_path / "asked.env").read_text().splitlines()}
    assert {"SLURM_CONF", "HOME"} <= names
    assert not {"SLURM_NTASKS", "SLURM_JOB_ID", "SRUN_DEBUG", "PYTHONPATH"} & names


@pytest.mark.parametrize("size", [0, READ_PART_BYTES + 1, WRITE_PART_BYTES + 1])
def test_files_are_copied(connection: Any, tmp_path: Path, size: int) -> None:
    source, remote, back = tmp_path / "source", tmp_path / "it's there", tmp_path / "back"
    source.write_bytes(os.urandom(size))
    connection.put_file(str(source), str(remote))
    connection.fetch_file(str(remote), str(back))
    assert remote.read_bytes() == back.read_bytes() == source.read_bytes()
    absent = str(tmp_path / "absent")
    with pytest.raises(AnsibleFileNotFound):
        connection.put_file(absent, str(remote))
    with pytest.raises(AnsibleError, match="No such file"):
        connection.fetch_file(absent, str(back))


def says(tmp_path: Path, code: int, text: str) -> None:
    (tmp_path / "bin" / "srun").write_text(f"#!/bin/sh\ncat >&2 <<'E'\n{text}\nE\nexit {code}\n")


@pytest.mark.parametrize(
    "text",
    [
        "srun: error: Slurm job 7 has expired\nsrun: Check SLURM_JOB_ID environment variable.",
        "srun: error: Unable to confirm allocation for job 7: Invalid job id specified",
        "srun: error: Unable to create step for job 7: Requested node configuration is not available",
        "slurmstepd-gpu-0: error: *** STEP 7.5 ON gpu-0 CANCELLED AT 2026-11-22T14:14:52 ***",
        "argus.verl: the step of job 7 does not answer here (Connection refused)",
    ],
)
def test_a_job_that_has_ended_or_has_no_step_is_no_connection(connection: Any, tmp_path: Path, text: str) -> None:
    says(tmp_path, 1, text)
    has_ended = "expired" in text or "Invalid job id" in text
    with pytest.raises(AnsibleConnectionFailure, match="job 7 has ended" if has_ended else "no step in .* job 7: "):
        connection.exec_command("true")


def test_what_srun_says_of_every_command_that_fails_is_left_out(connection: Any, tmp_path: Path) -> None:
    noise = (
        "srun: cluster configuration lacks support for cpu binding\nsrun: error: gpu-0: task 0: Exited with exit code"
    )
    says(tmp_path, 2, f"{noise} 2\nown words")
    assert connection.exec_command("true") == (2, b"", b"own words\n")
    (tmp_path / "bin" / "srun").unlink()
    with pytest.raises(AnsibleConnectionFailure):
        connection.exec_command("true")
    connection.become = object()
    with pytest.raises(AnsibleError, match="become"):
        connection.exec_command("true")
