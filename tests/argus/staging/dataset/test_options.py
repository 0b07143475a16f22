"""The options of datasets, as the module gets them."""

from __future__ import annotations

from argus.staging.items import Columns, Dataset


def test_options_that_are_not_set_have_their_defaults() -> None:
    options = Dataset.model_validate(
        {
            "name": 7,
            "files": {"train": "/a.jsonl", "val": None},
            "columns": {"prompt": "question", "extra": ["level"], "messages": None},
            "tiny": "no",
            "workload": None,
            "val_rows": "0",
        }
    )
    assert (options.name, options.patterns, options.tiny) == ("7", {"train": ["/a.jsonl"]}, False)
    assert options.columns == Columns(prompt="question", extra=["level"])
    assert options.columns.given == {"prompt": "question", "extra": ["level"]}
    # 0 is a value, which is an error later.
    assert (options.val_rows, options.workload, options.arguments, options.hub) == (0, "rl", [], None)
    assert Columns().given == {}
