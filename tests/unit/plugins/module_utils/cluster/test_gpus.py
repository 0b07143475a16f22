"""GPUs as recorded output of nvidia-smi and the kernel log, and a tree of sysfs, describe them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from ansible_collections.argus.verl.plugins.module_utils.cluster.gpus import (
    Gpu,
    parse_nvidia_gpus,
    parse_xids,
    read_amd_gpus,
)
from ansible_collections.argus.verl.plugins.module_utils.cluster.system import Process, list_processes, with_origin
from samples import nvidia_smi

RECORDED = Path(__file__).parents[3] / "fixtures" / "preflight"
OURS, THEIRS = "a" * 64, "b" * 64
LOST = "Unable to determine the device handle for GPU7: 0000:DB:00.0: Unknown Error"


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def recorded(name: str) -> Gpu:
    ((gpu,), stray) = parse_nvidia_gpus((RECORDED / name).read_text())
    assert stray == ""
    return gpu


def test_recorded_gpus() -> None:
    a100, h200, blackwell = (recorded(f"nvidia_smi_{name}.xml") for name in ("a100", "h200", "blackwell"))
    name, uuid = "NVIDIA A100-SXM4-80GB", "GPU-513536b6-7d19-9063-b049-1e69664bb298"
    expected = Gpu(0, name, uuid, 81920, "535.54.03", "0000:01:00.0", "Enabled", 0, 0, memory_used_mib=50)
    assert a100 == expected
    assert (h200.name, h200.memory_mib, h200.driver_version) == ("NVIDIA H200", 143771, "580.159.04")
    # "N/A" and "None" are no values.
    assert (h200.uncorrected, h200.mig, h200.recovery) == (0, "Disabled", "")
    assert (blackwell.uncorrected, blackwell.recovery, blackwell.mig) == (None, "", "")
    assert blackwell.processes == (Process(4242, "python3", memory_mib=65078),)


@pytest.mark.parametrize(
    ("before", "after", "field", "value"),
    [
        ("<sram_uncorrectable>0", "<sram_uncorrectable>2", "uncorrected", 2),
        ("<dram_uncorrectable>0", "<dram_uncorrectable>3", "uncorrected", 3),
        ("<dram_correctable>0", "<dram_correctable>9", "uncorrected", 0),
        *(
            ("<remapped_rows>N/A", f"<remapped_rows><remapped_row_{tag}>Yes</remapped_row_{tag}>", field, True)
            for tag, field in (("pending", "remap_pending"), ("failure", "remap_failed"))
        ),
        ("<pending_retirement>N/A", "<pending_retirement>Yes", "remap_pending", True),
        ("<reset_required>No", "<reset_required>Yes", "recovery", "Reset"),
        # Memory that is shared with the CPU has no size.
        ("<total>81920 MiB", "<total>N/A", "memory_mib", 0),
        # Older drivers.
        ("<volatile>", "<volatile><double_bit><total>4</total></double_bit>", "uncorrected", 4),
    ],
)
def test_elements_that_change(before: str, after: str, field: str, value: object) -> None:
    text = (RECORDED / "nvidia_smi_a100.xml").read_text()
    assert before in text
    ((gpu,), _stray) = parse_nvidia_gpus(text.replace(before, after, 1))
    assert getattr(gpu, field) == value


def test_a_lost_gpu_is_an_error_beside_the_others() -> None:
    text = nvidia_smi(7)
    last = text.rindex("</nvidia_smi_log>")
    for broken in (f"{LOST}\n{text}", f"{text}{LOST}\n", f"{text[:last]}{LOST}\n{text[last:]}"):
        gpus, stray = parse_nvidia_gpus(broken)
        assert ([gpu.index for gpu in gpus], stray) == (list(range(7)), LOST)
    assert parse_nvidia_gpus(LOST) == ([], LOST)
    assert parse_nvidia_gpus("<nvidia_smi_log><gpu>")[1].startswith("nvidia-smi -q -x prints no XML: ")


def test_xids_are_counted_by_gpu_and_number() -> None:
    xids = parse_xids((RECORDED / "kernel_log.txt").read_text())
    counts = [(xid.bus, xid.number, xid.count) for xid in xids]
    assert counts == [("0000:3b:00", 31, 1), ("0000:5e:00", 63, 1), ("0000:83:00", 79, 2)]
    assert xids[2].text == "GPU has fallen off the bus."
    assert parse_xids("NVRM: Xid (PCI:0000:01:00): 48")[0].text == ""


def with_amd_gpu(root: Path, card: int, bus: str, vendor: str = "0x1002", uncorrected: int = 0) -> None:
    device = root / "sys/devices" / bus
    errors = {"ras/umc_err_count": "ue: 0\nce: 7\n", "ras/sdma_err_count": f"ue: {uncorrected}\nce: 0\n"}
    memory = {"mem_info_vram_used": 283 << 20, "mem_info_vram_total": 196592 << 20}
    for name, text in {"vendor": vendor, "product_name": "AMD Instinct MI300X", **memory, **errors}.items():
        write(device / name, f"{text}\n")
    (root / f"sys/class/drm/card{card}").mkdir(parents=True)
    (root / f"sys/class/drm/card{card}/device").symlink_to(device)


def test_amd_gpus_of_sysfs(tmp_path: Path) -> None:
    with_amd_gpu(tmp_path, 1, "0000:26:00.0", uncorrected=3)
    with_amd_gpu(tmp_path, 10, "0000:05:00.0")
    with_amd_gpu(tmp_path, 0, "0000:01:00.0", vendor="0x10de")
    write(tmp_path / "sys/module/amdgpu/version", "6.8.5\n")
    (tmp_path / "sys/class/kfd/kfd/proc/77").mkdir(parents=True)
    write(tmp_path / "proc/77/comm", "python3\n")
    write(tmp_path / "proc/77/cgroup", f"0::/system.slice/docker-{OURS}.scope\n")
    first, second = read_amd_gpus(tmp_path)
    used = (Process(77, "python3", container=OURS),)
    expected = Gpu(0, "AMD Instinct MI300X", "", 196592, "6.8.5", "0000:05:00.0", uncorrected=0, memory_used_mib=283)
    assert first == replace(expected, processes=used)
    assert (second.index, second.bus, second.uncorrected) == (1, "0000:26:00.0", 3)
    assert read_amd_gpus(tmp_path / "none") == []


@pytest.mark.parametrize(
    ("line", "container"),
    [
        (f"0::/system.slice/docker-{OURS}.scope", OURS),
        (f"12:pids:/docker/{OURS}", OURS),
        (f"0::/machine.slice/libpod-{OURS}.scope/container", OURS),
        (f"0::/docker/{THEIRS}/docker/{OURS}", OURS),
        (f"0::/docker/{'a' * 65}", ""),
        ("0::/user.slice", ""),
    ],
)
def test_names_of_cgroups(tmp_path: Path, line: str, container: str) -> None:
    write(tmp_path / "proc/1/stat", "1 (a (b) c) D 1 1")
    write(tmp_path / "proc/30/stat", "")
    assert list(list_processes(tmp_path)) == [Process(1, "a (b) c", "D")]
    write(tmp_path / "proc/7/environ", "PATH=/bin\0ARGUS_VERL_NODE_DIRECTORY=/home/ml/nodes/gpu-1\0")
    write(tmp_path / "proc/8/environ", "NOT_ARGUS_VERL_NODE_DIRECTORY=/home/ml\0")
    assert [with_origin(tmp_path, Process(pid, "python3")).of_node for pid in (7, 8, 9)] == [True, False, False]
    write(tmp_path / "proc/5/cgroup", f"{line}\n")
    assert with_origin(tmp_path, Process(5, "python3")).container == container
