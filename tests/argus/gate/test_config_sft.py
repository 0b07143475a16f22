from __future__ import annotations

from typing import Any

import pytest
from composed_config import Wrong, check, found

WRONG: list[Wrong] = [
    ("sft", {"data.train_batch_size": 100}, "error", "set it to a multiple of 8"),
    (
        "sft",
        {"data.val_files": None, "trainer.test_freq": 1},
        "error trainer.test_freq",
        "set trainer.test_freq=-1, or stage a val.parquet",
    ),
    ("sft", {"data.pad_mode": "right"}, "error", ""),
    ("sft", {"data.max_length": 9000}, "warning data.max_token_len_per_gpu", "set it to 9000 or more"),
    (
        "sft",
        {"data.use_dynamic_bsz": False, "data.micro_batch_size_per_gpu": 5},
        "error data.micro_batch_size_per_gpu",
        "",
    ),
    ("sft", {"engine.ulysses_sequence_parallel_size": 3}, "error", ""),
    (
        "sft",
        {"engine.ulysses_sequence_parallel_size": 2, "model.use_remove_padding": False},
        "error model.use_remove_padding",
        "",
    ),
    (
        "sft",
        {"engine.ulysses_sequence_parallel_size": 2, "data.max_length": 16385},
        "warning data.max_token_len_per_gpu",
        "set it to 16385 or more",
    ),
]


@pytest.mark.parametrize("row", WRONG, ids=[str(row[1])[:70] for row in WRONG])
def test_wrong_settings(row: Wrong) -> None:
    check(row)


def test_other_engines_have_other_rules() -> None:
    assert found("sft", {"engine.strategy": "megatron", "data.train_batch_size": 100, "data.pad_mode": "right"}) == []


def test_ranks_that_share_a_sequence_share_a_batch() -> None:
    assert found("sft", {"engine.ulysses_sequence_parallel_size": 2, "data.train_batch_size": 100}) == []
    (text,) = found("sft", {"engine.ulysses_sequence_parallel_size": 2, "data.train_batch_size": 102})
    assert text.startswith("error data.train_batch_size ") and text.endswith("multiple of 4")


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
