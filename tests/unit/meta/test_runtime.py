from __future__ import annotations

from pathlib import Path

import yaml

REPO = Path(__file__).resolve().parents[3]


def test_action_group_lists_every_module() -> None:
    runtime = yaml.safe_load((REPO / "meta" / "runtime.yml").read_text())
    modules = sorted(path.stem for path in (REPO / "plugins" / "modules").glob("*.py"))
    assert runtime["action_groups"]["all"] == modules
