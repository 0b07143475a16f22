"""What Slurm's commands print, recorded with 22.05, and as newer releases print it."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.argus.verl.plugins.plugin_utils.slurm import allocation

RECORDED = Path(__file__).parent / "recorded"
# Of Slurm 24: another resource beside GPUs, and memory that is counted.
NEWER = (
    "JobId=7 JobName=a b NodeList=node-[1-2] JOB_GRES=gpu:rtx2080:3,gg:g0:1     Nodes=node-1 CPU_IDs=2-3 Mem=1024 "
    "GRES=gpu:rtx2080:1(IDX:1),gg:g0(CNT:1)     Nodes=node-2 CPU_IDs=0,8-9 Mem=2048 GRES=gpu:rtx2080:2(IDX:0,3) "
    "MinCPUsNode=2 Comment=its GRES=none"
)


@pytest.mark.parametrize(
    ("listed", "names"),
    [
        ("", []),
        ("login", ["login"]),
        ("gpu-[0-1]", ["gpu-0", "gpu-1"]),
        ("gpu-[08-10,7],login", ["gpu-08", "gpu-09", "gpu-10", "gpu-7", "login"]),
        ("r[1-2]n[3,5]x,r9", ["r1n3x", "r1n5x", "r2n3x", "r2n5x", "r9"]),
    ],
)
def test_a_list_of_nodes_is_expanded(listed: str, names: list[str]) -> None:
    assert allocation.expand(listed) == names


HUGE = (
    "n[0-99999999]",
    "n[1-9][0-9999][0-9]",
    f"n[{'0-9999,' * 9}1]",
    "n[0-9999]," * 9 + "n",
    f"n[{'1' * 5000}]",
    "n[٣]",
)


@pytest.mark.parametrize("listed", ["gpu-[0-", "gpu-]", "gpu-[a-b]", "gpu-[1-]", "gpu-[]", "gpu-[1]]", *HUGE])
def test_what_is_no_list_of_nodes_is_refused(listed: str) -> None:
    with pytest.raises(allocation.SlurmError):
        allocation.expand(listed)


@pytest.mark.parametrize(
    ("gres", "gpus"),
    [
        ("", 0),
        ("gpu:tiny:2(IDX:0-1)", 2),
        ("gpu:8", 8),
        ("gpu:1g.10gb:3(IDX:0-2),gpu:h100:4(IDX:3-6)", 7),
        ("gres/gpu=4", 4),
        ("gg:g0(CNT:1),shard:4", 0),
        ("gg:g0(CNT:1),gpu:rtx2080:1(IDX:1)", 1),
    ],
)
def test_gpus_of_all_types_are_counted(gres: str, gpus: int) -> None:
    assert allocation.gpu_count(gres) == gpus


@pytest.mark.parametrize(("identifiers", "cpus"), [("", 0), ("0-3,8", 5), ("7", 1), ("all", 0)])
def test_cpus_are_counted(identifiers: str, cpus: int) -> None:
    assert allocation.cpu_count(identifiers) == cpus


def test_each_node_has_what_its_group_has() -> None:
    found = allocation.resources_by_node(NEWER)
    assert found.keys() == {"node-1", "node-2"}
    assert (found["node-1"]["CPU_IDs"], found["node-1"]["Mem"]) == ("2-3", "1024")
    assert allocation.gpu_count(found["node-1"]["GRES"]) == 1
    assert found["node-2"]["CPU_IDs"] == "0,8-9"


def test_a_value_may_have_spaces_and_the_first_of_a_key_counts() -> None:
    record = next(allocation.records_of(NEWER))
    assert record["JobName"] == "a b"
    assert record["Comment"] == "its"
    assert record["Mem"] == "1024"


def test_nothing_is_no_value() -> None:
    record = next(allocation.records_of((RECORDED / "pending.txt").read_text()))
    assert record["Account"] == "(null)"
    assert (
        allocation.field_value(record, "Account")
        == allocation.field_value(record, "EndTime")
        == allocation.field_value(record, "Absent")
        == ""
    )
    assert allocation.field_value(record, "Reason") == "Resources"
