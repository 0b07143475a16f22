"""The files of an inventory."""

from __future__ import annotations

from pathlib import Path

from ansible_collections.argus.verl.plugins.plugin_utils.inventory.inventory import source_findings, without_hosts


def test_inventory_without_hosts_tells_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "hosts.yml").touch()
    there = str(tmp_path / "hosts.yml")
    assert [(each.where, each.problem) for each in without_hosts([there, "a,"])] == [(f"{there}, a,", "has no hosts")]
    assert [each.where for each in without_hosts([])] == ["inventory"]
    assert source_findings([there, "a,b"]) == []
    assert [each.where for each in source_findings([str(tmp_path / "x")])] == [str(tmp_path / "x")]
    missing = str(tmp_path / "none" / "hosts.yml")
    assert [(each.where, each.problem) for each in without_hosts([there, missing])] == [(missing, "does not exist")]
