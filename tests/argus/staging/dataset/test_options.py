"""The options of datasets, as the module gets them."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from argus.staging.dataset.options import Columns, DatasetOptions, Measure
from argus.staging.errors import StagingError


def test_options_that_are_not_set_have_their_defaults() -> None:
    options = DatasetOptions.model_validate(
        {
            "name": 7,
            "files": {"train": "/a.jsonl", "val": None},
            "columns": {"prompt": "question", "extra": ["level"], "messages": None},
            "tiny": "no",
            "workload": None,
            "val_rows": "0",
        }
    )
    assert (options.name, options.files, options.tiny) == ("7", {"train": ["/a.jsonl"]}, False)
    assert options.columns == Columns(prompt="question", extra=["level"])
    assert options.columns.given == {"prompt": "question", "extra": ["level"]}
    # 0 is a value, which is an error later.
    assert (options.val_rows, options.workload, options.arguments, options.hub) == (0, "rl", [], None)
    assert Columns().given == {}


def test_the_token_is_not_shown() -> None:
    assert "hf_secret" not in repr(DatasetOptions(name="a", token="hf_secret"))
    with pytest.raises(ValidationError) as error:
        DatasetOptions.model_validate({"name": "a", "token": ["hf_secret"]})
    assert "hf_secret" not in error.value.errors()[0]["msg"]


def test_rows_are_measured_with_both_options() -> None:
    assert DatasetOptions(name="a", model="m", max_prompt_length=8).measure == Measure("m", 8)
    assert DatasetOptions(name="a").measure is None
    for one in ({"model": "m"}, {"max_prompt_length": 8}):
        with pytest.raises(StagingError):
            _measure = DatasetOptions.model_validate({"name": "a", **one}).measure
