"""The options of rl_dataset, from the parameters of the module."""

from __future__ import annotations

from argus.staging.dataset.options import Columns, DatasetOptions, Measure

PARAMS = {
    "name": "sums",
    "state": "present",
    "files": {"train": ["/a.jsonl"], "val": None},
    "columns": {"prompt": "question", "extra": ["level"], "messages": None},
    "tiny": False,
    "token": "hf_secret",
    "val_rows": 0,
}


def test_options_that_are_not_set_have_their_defaults() -> None:
    options = DatasetOptions.of(PARAMS)
    assert options.files == {"train": ["/a.jsonl"]}
    assert options.columns == Columns(prompt="question", extra=["level"])
    assert options.columns.given == {"prompt": "question", "extra": ["level"]}
    # 0 is a value, which is an error later.
    assert (options.val_rows, options.workload, options.arguments, options.hub) == (0, "rl", (), None)
    assert Columns().given == {}


def test_the_token_is_not_shown() -> None:
    assert "hf_secret" not in repr(DatasetOptions.of(PARAMS))


def test_rows_are_measured_with_both_options() -> None:
    assert DatasetOptions("a", model="m", max_prompt_length=8).measure == Measure("m", 8)
    assert DatasetOptions("a", model="m").measure is None
