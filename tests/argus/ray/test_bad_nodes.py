from __future__ import annotations

import os
import time
from pathlib import Path

from argus.jobs.registry import Registry
from argus.ray.departures import BAD_SECONDS, bad_nodes, forget_losses, loss_sentences, remember_loss


def test_nodes_that_were_lost_under_two_jobs_within_a_day(tmp_path: Path) -> None:
    moment = time.time()
    for node, job in (("gpu-1", "a"), ("gpu-1", "a"), ("gpu-2", "a"), ("gpu-2", "b"), ("gpu-3", "b"), ("gpu-3", "c")):
        remember_loss(tmp_path, node, job, moment)
    assert bad_nodes(tmp_path, moment) == {"gpu-2": ["a", "b"], "gpu-3": ["b", "c"]}
    assert loss_sentences(bad_nodes(tmp_path, moment))[0] == "gpu-2 was lost under 2 jobs within a day: a, b."
    # They are no jobs.
    assert Registry(tmp_path).ids() == []
    forget_losses(tmp_path, "gpu-2")
    assert list(bad_nodes(tmp_path, moment)) == ["gpu-3"]
    (old,) = tmp_path.glob("*c@gpu-3")
    os.utime(old, (moment - BAD_SECONDS - 1,) * 2)
    assert bad_nodes(tmp_path, moment) == {}
    remember_loss(tmp_path, "gpu-4", "d", moment)
    assert not old.exists()
