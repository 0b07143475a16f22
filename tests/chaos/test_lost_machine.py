"""The machine of the head is lost for good, with its tables and its registry: docs/life_of_a_job.md."""

from __future__ import annotations

import shutil

from faults import docker, left_by
from system import HEAD, REPO, Submit, playbook, until

STATE = REPO / ".cache" / "test" / "state"
SIZE = {"nnodes": 1, "gpus_per_node": 1}
ENDLESS = {"trainer.total_epochs": 100_000, "trainer.save_freq": 2, "trainer.test_freq": -1}


def test_a_job_continues_under_another_head(submit: Submit) -> None:
    job = submit("sft", resources=SIZE, trainer_overrides=ENDLESS)
    until(lambda: (job.archive.heartbeat().step or 0) > 4, "the job has saved a checkpoint", 600)
    docker("rm", "--force", HEAD)
    shutil.rmtree(STATE)
    playbook("cluster_up", allow_disruption=True)
    resumed = submit("sft", resources=SIZE, trainer_overrides=ENDLESS, resume_from=job.submission_id)
    until(lambda: (resumed.archive.heartbeat().step or 0) > 4, "the job continues", 600)
    assert (resumed.archive.plan().resumed_from_step or 0) >= 4
    playbook("stop", submission_id=job.submission_id)
    job.wait("STOPPED", "FAILED")
    playbook("stop", submission_id=resumed.submission_id)
    resumed.wait("STOPPED")
    assert left_by(job) == left_by(resumed) == []
