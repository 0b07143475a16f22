"""The batch script."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from ansible_collections.argus.verl.plugins.plugin_utils.slurm.commands import (
    AllocationRequest,
    batch_script,
    request_findings,
    sbatch_directives,
)

WISH = AllocationRequest(job_name="argus-verl", python="/opt/verl/bin/python3", nodes=2, gpus="h100:8", time="12:00:00")


def test_hosts_are_asked_for_whole_or_in_part() -> None:
    (options,) = sbatch_directives(WISH)
    assert options[:4] == ["--job-name=argus-verl", "--no-requeue", "--no-kill", "--time=12:00:00"]
    assert options[4:] == ["--nodes=2", "--ntasks-per-node=1", "--exclusive", "--mem=0", "--gpus-per-node=h100:8"]
    (options,) = sbatch_directives(replace(WISH, cpus=16, memory="64G"))
    assert {"--cpus-per-task=16", "--mem=64G"} < set(options)
    assert not {"--exclusive", "--mem=0"} & set(options)
    assert not [option for option in sbatch_directives(replace(WISH, cpus=16))[0] if option.startswith("--mem")]
    assert {"--exclusive", "--mem=64G"} < set(sbatch_directives(replace(WISH, memory="64G"))[0])


def test_a_head_of_its_own_is_the_first_component() -> None:
    head, workers = sbatch_directives(replace(WISH, head=["--partition=cpu"], options=["--partition=gpu"]))
    assert {"--time=12:00:00", "--nodes=1", "--ntasks=1", "--partition=cpu"} < set(head)
    assert {"--time=12:00:00", "--nodes=2", "--partition=gpu"} < set(workers)
    assert "--partition=gpu" not in head
    written = batch_script(replace(WISH, head=["--partition=cpu"]))
    assert written.count("#SBATCH hetjob\n") == 1
    assert "srun --het-group=0-1 " in written


def test_the_program_of_the_step_is_part_of_the_script(tmp_path: Path) -> None:
    """bash runs the script, with a program in place of srun that shows what it gets."""
    srun = tmp_path / "srun"
    srun.write_text('#!/bin/sh\nprintf "%s\\0" "$@"\n')
    srun.chmod(0o755)
    wish = replace(WISH, setup=["export SETUP=done"], prefix=["apptainer", "exec", "it's.sif"], srun_options=["--x=$y"])
    script = batch_script(wish) + 'printf "%s" "$SETUP"'
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_JOB_ID": "7"}
    done = subprocess.run(["bash"], input=script, env=environment, text=True, capture_output=True, check=True)
    *words, setup = done.stdout.split("\0")
    assert setup == "done"
    assert "--overlap" in words
    at = words.index("--x=$y")
    assert words[at + 1 : at + 7] == ["apptainer", "exec", "it's.sif", "/opt/verl/bin/python3", "-I", "-c"]
    compile(words[-2], "step.py", "exec")
    assert words[-1].startswith("/tmp/argus-verl-") and words[-1].endswith("-7")
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"time": "12h"}, "slurm_time"),
        ({"time": "1:2:3:4"}, "slurm_time"),
        ({"gpus": "eight"}, "slurm_gpus"),
        ({"nodes": 0}, "slurm_nodes"),
        ({"python": "python3"}, "ray_node_python"),
        ({"options": ["#SBATCH --qos=high"]}, "slurm_options"),
        ({"head": ["--qos=high\nrm"]}, "slurm_head"),
        ({"memory": "64 GB"}, "slurm_memory"),
    ],
)
def test_what_slurm_would_take_for_a_comment_is_refused(changes: dict[str, object], where: str) -> None:
    findings = request_findings(replace(WISH, **changes))  # type: ignore[arg-type]
    assert [finding.where for finding in findings] == [where]
    for time in ("90", "90:00", "12:00:00", "2-12", "2-12:00", "2-12:00:00", ""):
        assert list(request_findings(replace(WISH, time=time))) == []
