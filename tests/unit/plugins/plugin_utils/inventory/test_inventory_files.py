"""The files of an inventory."""

from __future__ import annotations

from pathlib import Path

from ansible_collections.argus.verl.plugins.module_utils.argus.common.findings import WARNING, Finding
from ansible_collections.argus.verl.plugins.plugin_utils.inventory.inventory import source_findings, without_hosts


def test_inventory_without_hosts_tells_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "hosts.yml").touch()
    there = str(tmp_path / "hosts.yml")
    assert [(each.where, each.what) for each in without_hosts([there, "a,"])] == [(f"{there}, a,", "has no hosts")]
    assert [each.where for each in without_hosts([])] == ["inventory"]
    missing = str(tmp_path / "none" / "hosts.yml")
    assert [(each.where, each.what) for each in without_hosts([there, missing])] == [(missing, "does not exist")]


def test_directory_with_jobspecs_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "hosts.yml").touch()
    assert source_findings([str(tmp_path), str(tmp_path / "hosts.yml"), "a,b"], []) == []
    for name in ("jobspecs", "rewards"):
        (tmp_path / name).mkdir()
    assert source_findings([str(tmp_path)], []) == [
        Finding(
            str(tmp_path),
            "Ansible takes the files in jobspecs and rewards for hosts",
            f"pass a file instead of the directory: -i {tmp_path}/hosts.yml",
            WARNING,
        )
    ]
    assert source_findings([str(tmp_path / "hosts.yml")], []) == []
    assert source_findings([str(tmp_path)], ["jobspecs", "rewards"]) == []
    (tmp_path / "hosts.yml").rename(tmp_path / "lab.yml")
    (finding,) = source_findings([str(tmp_path)], ["rewards"])
    assert finding.what == "Ansible takes the files in jobspecs for hosts"
    assert finding.todo == "pass a file instead of the directory: -i its file with the hosts"


def test_missing_source_is_an_error(tmp_path: Path) -> None:
    assert source_findings([str(tmp_path / "x")], []) == [
        Finding(str(tmp_path / "x"), "does not exist", "correct the path of the inventory, or remove it")
    ]
