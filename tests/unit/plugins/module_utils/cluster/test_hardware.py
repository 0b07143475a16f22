from __future__ import annotations

import pytest
from ansible_collections.argus.verl.plugins.module_utils.cluster.hardware import (
    Gpu,
    parse_gpus,
    parse_meminfo,
)
from samples import recorded


def test_eight_gpus() -> None:
    gpus, strays = parse_gpus(recorded("nvidia_smi_h100.csv"))
    assert [gpu.index for gpu in gpus] == list(range(8))
    assert gpus[7] == Gpu(7, "NVIDIA H100 80GB HBM3", "GPU-e13c9d06-b85a-5074-9f42-60d7e5a2b18f", 81559, "550.90.07")
    assert strays == []


def test_gpu_without_reported_memory_counts() -> None:
    gpus, strays = parse_gpus("0, NVIDIA GB10, GPU-1, [N/A], 580.95.05\n")
    assert (len(gpus), gpus[0].memory_mib, strays) == (1, 0, [])


def test_meminfo_in_bytes() -> None:
    known = parse_meminfo(recorded("meminfo.txt"))
    assert known["MemTotal"] == 2113958512 * 1024
    # It has no unit, so it is not a size.
    assert "HugePages_Total" not in known


@pytest.mark.parametrize("line", ["No devices were found", "x, NVIDIA H100, GPU-1, 81559, 1", "0, H100, GPU-1, 81559"])
def test_other_lines_of_nvidia_smi_are_no_gpus(line: str) -> None:
    assert parse_gpus(f"\n{line}\n0, NVIDIA H100, GPU-1, 81559, 1\n")[1] == [line]
