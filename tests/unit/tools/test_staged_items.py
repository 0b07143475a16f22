"""The documentation of the module stage has the options of items."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.argus.verl.plugins.modules import stage

TOOLS = Path(__file__).resolve().parents[3] / "tools"


def documented() -> dict[str, Any]:
    return dict(yaml.safe_load(stage.DOCUMENTATION)["options"])


def test_the_documentation_is_up_to_date(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(TOOLS)
    monkeypatch.delitem(sys.modules, "staged_items", raising=False)
    import staged_items

    assert staged_items.MODULE.read_text() == staged_items.module_text(), "run `make generate`"


def test_types_of_items_are_those_of_ansible() -> None:
    dataset = documented()["datasets"]["suboptions"]
    assert next(iter(dataset)) == "name" and dataset["name"]["required"]
    said = {
        name: (dataset[name]["type"], dataset[name].get("default")) for name in ("from", "tiny", "val_rows", "files")
    }
    assert said == {"from": ("str", None), "tiny": ("bool", False), "val_rows": ("int", None), "files": ("dict", None)}
    assert dataset["from"]["choices"] == ["controller", "shared_root", "node"]
    assert dataset["columns"]["suboptions"]["extra"] | {"description": ""} == {
        "description": "", "type": "list", "elements": "str", "default": [],
    }  # fmt: skip
    overlays = documented()["snapshots"]["suboptions"]["overlays"]
    assert overlays["elements"] == "dict" and set(overlays["suboptions"]) == {"path", "to"}
