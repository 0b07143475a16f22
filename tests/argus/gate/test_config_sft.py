from __future__ import annotations

from typing import Any

import pytest
from composed_config import found

WRONG: list[tuple[str, dict[str, Any], str]] = [
    # The workload, the changes, and the only finding.
    (
        "sft",
        {"data.train_batch_size": 100},
        ("error data.train_batch_size is 100, not a multiple of the 8 ranks that share it: set it to a multiple of 8"),
    ),
    (
        "sft",
        {"data.val_files": None, "trainer.test_freq": 1},
        (
            "error trainer.test_freq is 1, but the job has no data for validation: it would end with TypeError after "
            "step 1: set trainer.test_freq=-1, or stage a val.parquet"
        ),
    ),
    (
        "sft",
        {"data.pad_mode": "right"},
        "error data.pad_mode is right, but the FSDP engine supports no_padding only: remove it",
    ),
    (
        "sft",
        {"data.max_length": 9000},
        (
            "warning data.max_token_len_per_gpu allows 8192 tokens, but data.max_length is 9000: a "
            "sample of that length ends the job: set it to 9000 or more"
        ),
    ),
    (
        "sft",
        {"data.use_dynamic_bsz": False, "data.micro_batch_size_per_gpu": 5},
        (
            "error data.micro_batch_size_per_gpu is 5, which does not divide the 32 samples of a rank: "
            "set it to a divisor, or set data.use_dynamic_bsz=True"
        ),
    ),
    (
        "sft",
        {"engine.ulysses_sequence_parallel_size": 3},
        (
            "error engine.ulysses_sequence_parallel_size is 3, which does not divide the job's 8 GPUs: "
            "set it to a divisor"
        ),
    ),
    (
        "sft",
        {"engine.ulysses_sequence_parallel_size": 2, "model.use_remove_padding": False},
        (
            "error model.use_remove_padding is false, but engine.ulysses_sequence_parallel_size is 2: "
            "set model.use_remove_padding=True"
        ),
    ),
    (
        "sft",
        {"engine.ulysses_sequence_parallel_size": 2, "data.max_length": 16385},
        (
            "warning data.max_token_len_per_gpu allows 16384 tokens, but data.max_length is 16385: a "
            "sample of that length ends the job: set it to 16385 or more"
        ),
    ),
]


@pytest.mark.parametrize(("workload", "changes", "expected"), WRONG, ids=[str(row[1])[:70] for row in WRONG])
def test_wrong_settings(workload: str, changes: dict[str, Any], expected: str) -> None:
    assert found(workload, changes) == [expected]


def test_other_engines_have_other_rules() -> None:
    assert found("sft", {"engine.strategy": "megatron", "data.train_batch_size": 100, "data.pad_mode": "right"}) == []


def test_ranks_that_share_a_sequence_share_a_batch() -> None:
    assert found("sft", {"engine.ulysses_sequence_parallel_size": 2, "data.train_batch_size": 100}) == []
    assert found("sft", {"engine.ulysses_sequence_parallel_size": 2, "data.train_batch_size": 102}) == [
        "error data.train_batch_size is 102, not a multiple of the 4 ranks that share it: set it to a multiple of 4"
    ]


def test_a_batch_that_cannot_be_divided_has_no_second_finding() -> None:
    changes = {"data.use_dynamic_bsz": False, "data.train_batch_size": 100, "data.micro_batch_size_per_gpu": 5}
    assert len(found("sft", changes)) == 1


@pytest.mark.parametrize(
    "changes",
    [{"data.val_files": None, "trainer.test_freq": -1}, {"data.val_files": ["v.parquet"], "trainer.test_freq": 1}],
)
def test_data_for_validation_is_needed_for_validation_only(changes: dict[str, Any]) -> None:
    assert found("sft", changes) == []


def test_lengths_matter_to_dynamic_batches_only() -> None:
    assert found("sft", {"data.max_length": 8192}) == []
    assert found("sft", {"data.max_length": 9000, "data.use_dynamic_bsz": False}) == []
