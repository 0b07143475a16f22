"""The files of an inventory."""

from __future__ import annotations

from pathlib import Path

from ansible_collections.argus.verl.plugins.module_utils.argus.common.findings import WARNING, Finding
from ansible_collections.argus.verl.plugins.module_utils.cluster.inventory_files import source_findings, without_hosts


def test_inventory_without_hosts_tells_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "hosts.yml").touch()
    there = str(tmp_path / "hosts.yml")
    todo = "add hosts; Ansible's warnings above tell what it could not read"
    assert without_hosts([there, "a,"]) == [Finding(f"{there}, a,", "has no hosts", todo)]
    assert without_hosts([]) == [Finding("inventory", "has no hosts", todo)]
    wrong, other = tmp_path / "host.yml", tmp_path / "none" / "x"
    (tmp_path / "prod").mkdir()
    (tmp_path / "prod" / "hosts.yml").touch()
    below = tmp_path / "prd" / "hosts.yml"
    assert without_hosts([there, str(wrong), str(below), str(other)]) == [
        Finding(str(wrong), "does not exist", f"did you mean {there}?"),
        Finding(str(below), "does not exist", f"did you mean {tmp_path / 'prod' / 'hosts.yml'}?"),
        Finding(str(other), "does not exist", "correct the path after -i"),
    ]


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


def test_variables_beside_a_directory_of_that_name_have_no_effect(tmp_path: Path) -> None:
    (tmp_path / "hosts.yml").touch()
    for name in (
        "group_vars/all/cluster.yml",
        "group_vars/workers.yml",
        "group_vars/notes.txt",
        "host_vars/gpu-0.yaml",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert source_findings([str(tmp_path / "hosts.yml"), "a,b"], []) == []
    (tmp_path / "group_vars" / "all.yml").touch()
    (tmp_path / "group_vars" / "notes").mkdir()
    (tmp_path / "host_vars" / "gpu-0").mkdir()
    expected = [
        Finding(
            str(tmp_path / "group_vars" / "all.yml"),
            "Ansible ignores it, because there is a directory all/ beside it",
            "move it into that directory",
        ),
        Finding(
            str(tmp_path / "host_vars" / "gpu-0.yaml"),
            "Ansible ignores it, because there is a directory gpu-0/ beside it",
            "move it into that directory",
        ),
    ]
    assert source_findings([str(tmp_path / "hosts.yml")], []) == expected
    assert source_findings([str(tmp_path)], []) == expected
