from __future__ import annotations

from argus.archive.status import ray_id, submission_id_of


def test_an_attempt_has_an_id_that_no_other_job_can_have() -> None:
    assert ray_id("sft-1", 1) == "sft-1"
    assert ray_id("sft-1", 2) == "sft-1~2"
    assert ray_id("sft-1", 12) == "sft-1~12"


def test_the_id_of_an_attempt_names_its_job() -> None:
    assert [submission_id_of(name) for name in ("sft-1", "sft-1~2", "sft-1~12")] == ["sft-1"] * 3
