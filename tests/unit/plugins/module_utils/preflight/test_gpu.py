"""Fake nvidia-smi and dmesg that answer, fail and hang; their output is recorded from published sources."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.argus.verl.plugins.module_utils.argus.common.findings import ERROR, NOTE, WARNING
from ansible_collections.argus.verl.plugins.module_utils.cluster.node_process import FoundProcess
from ansible_collections.argus.verl.plugins.module_utils.cluster.process_host import ProcessHost
from ansible_collections.argus.verl.plugins.module_utils.preflight import gpu
from ansible_collections.argus.verl.plugins.module_utils.preflight.checks import Expectation, Problem
from ansible_collections.argus.verl.plugins.module_utils.preflight.gpu import (
    Gpus,
    GpuState,
    links_up,
    parse_smi,
    parse_xids,
)
from ansible_collections.argus.verl.plugins.module_utils.preflight.reading import Process
from preflight_tree import OURS, RECORDED, THEIRS, Tree, context, differences
from samples import HEALTHY, container

HEALTHY_GPU = GpuState(
    "0000:01:00.0",
    "NVIDIA H100 80GB HBM3",
    "96.00.89.00.01",
    persistence="Enabled",
    mig="Disabled",
    uncorrected=0,
    uncorrected_ever=0,
    clock_mhz=1980,
    default_clock_mhz=1980,
    performance_state="P0",
    pcie_gen=5,
    pcie_gen_max=5,
    pcie_width=16,
    pcie_width_max=16,
    memory_used_mib=4,
    fabric="Completed",
    links_up=18,
)
HEALTHY_GPUS = Gpus(
    "550.90.07", (HEALTHY_GPU, replace(HEALTHY_GPU, bus="0000:02:00.0")), nvswitches=4, fabric_manager=True
)


ECC_ERRORS = "2 uncorrected memory errors since the driver was loaded, 5 ever"
NOT_REPLACED = "a row of its memory could not be replaced"
SLOWED = "slowed down: hw_slowdown, sw_thermal_slowdown"
REMAP = "<remapped_row_{0}>Yes</remapped_row_{0}>"


def judged(gpus: Gpus, **changes: Any) -> list[Problem]:
    return list(gpu.judge(gpus, context(**changes)))


def only(gpus: Gpus, **changes: Any) -> Problem:
    problems = judged(gpus, **changes)
    assert len(problems) == 1, problems
    return problems[0]


def one(**changes: Any) -> Problem:
    """The one problem of healthy GPUs, of which the second one has these changes."""
    return only(replace(HEALTHY_GPUS, gpus=(HEALTHY_GPU, replace(HEALTHY_GPUS.gpus[1], **changes))))


def test_recorded_a100() -> None:
    found = parse_smi((RECORDED / "nvidia_smi_a100.xml").read_text())
    assert (found.driver, found.error) == ("535.54.03", "")
    assert found.gpus == (
        GpuState(
            bus="0000:01:00.0",
            model="NVIDIA A100-SXM4-80GB",
            vbios="92.00.36.00.02",
            persistence="Disabled",
            mig="Enabled",
            uncorrected=0,
            uncorrected_ever=0,
            clock_mhz=1275,
            default_clock_mhz=1275,
            performance_state="P0",
            pcie_gen=4,
            pcie_gen_max=4,
            pcie_width=16,
            pcie_width_max=16,
            memory_used_mib=50,
        ),
    )
    assert [problem.key for problem in judged(found)] == ["gpu.mig", "gpu.persistence"]


def test_recorded_h200_is_healthy() -> None:
    found = parse_smi((RECORDED / "nvidia_smi_h200.xml").read_text())
    [each] = found.gpus
    assert (found.driver, each.bus, each.model, each.vbios) == (
        "580.159.04",
        "0000:00:06.0",
        "NVIDIA H200",
        "96.00.A5.00.1A",
    )
    assert (each.uncorrected, each.clock_mhz, each.pcie_gen, each.pcie_width, each.mig) == (0, 1980, 5, 16, "Disabled")
    # "N/A" and "None" of the fabric and of what the driver asks for are no values.
    assert (each.fabric, each.recovery) == ("", "")
    assert judged(found) == []


def test_recorded_blackwell_has_other_elements() -> None:
    (found,) = parse_smi((RECORDED / "nvidia_smi_blackwell.xml").read_text()).gpus
    # A deprecated element, "N/A" and "None" are no values.
    assert (found.clock_mhz, found.uncorrected, found.recovery, found.mig) == (None, None, "", "")
    assert found.processes == (Process(4242, "python3", memory_mib=65078),)
    # Generation 1 of 4 is that of an idle GPU.
    assert (found.pcie_gen, found.pcie_gen_max, found.performance_state) == (1, 4, "P8")
    assert only(Gpus(gpus=(found,))).key == "gpu.processes"


@pytest.mark.parametrize(
    ("before", "after", "field", "value"),
    [
        ("<sram_uncorrectable>0", "<sram_uncorrectable>2", "uncorrected", 2),
        ("<dram_uncorrectable>0", "<dram_uncorrectable>3", "uncorrected", 3),
        ("<dram_correctable>0", "<dram_correctable>9", "uncorrected", 0),
        (
            "<remapped_rows>N/A",
            "<remapped_rows><remapped_row_pending>Yes</remapped_row_pending>",
            "remap_pending",
            True,
        ),
        ("<remapped_rows>N/A", "<remapped_rows><remapped_row_failure>Yes</remapped_row_failure>", "remap_failed", True),
        ("<pending_retirement>N/A", "<pending_retirement>Yes", "remap_pending", True),
        ("<reset_required>No", "<reset_required>Yes", "recovery", "Reset"),
        ("<state>N/A", "<state>In Progress", "fabric", "In Progress"),
        ("hw_slowdown>Not Active", "hw_slowdown>Active", "slowdowns", ("hw_slowdown",)),
        ("sw_power_cap>Not Active", "sw_power_cap>Active", "slowdowns", ()),
    ],
)
def test_elements_that_change(before: str, after: str, field: str, value: object) -> None:
    text = (RECORDED / "nvidia_smi_a100.xml").read_text()
    assert before in text
    (found,) = parse_smi(text.replace(before, after, 1)).gpus
    assert getattr(found, field) == value


def test_elements_of_older_drivers() -> None:
    (found,) = parse_smi(
        "<a><gpu id='1'><clocks_throttle_reasons><clocks_throttle_reason_sw_thermal_slowdown>Active"
        "</clocks_throttle_reason_sw_thermal_slowdown></clocks_throttle_reasons><ecc_errors><volatile>"
        "<double_bit><total>4</total></double_bit></volatile></ecc_errors>"
        "<fabric><state>Completed</state><status>Some error</status></fabric></gpu></a>"
    ).gpus
    assert (found.slowdowns, found.uncorrected) == (("sw_thermal_slowdown",), 4)
    assert found.fabric == "Completed (Some error)"


def test_links_of_each_gpu() -> None:
    text = (RECORDED / "nvlink_status.txt").read_text()
    assert links_up(text) == {0: 6, 1: 4}


def test_xids_are_counted_by_gpu_and_number() -> None:
    found = parse_xids((RECORDED / "kernel_log.txt").read_text())
    assert [(xid.bus, xid.number, xid.count) for xid in found] == [
        ("0000:3b:00", 31, 1),
        ("0000:5e:00", 63, 1),
        ("0000:83:00", 79, 2),
    ]
    assert found[2].text == "GPU has fallen off the bus."
    assert parse_xids("NVRM: Xid (PCI:0000:01:00): 48")[0].text == ""


def test_healthy_gpus_have_no_problem() -> None:
    assert judged(HEALTHY_GPUS) == []
    assert judged(Gpus(installed=False)) == []


@pytest.mark.parametrize(
    ("changes", "key", "severity", "what"),
    [
        ({"uncorrected": 2, "uncorrected_ever": 5}, "gpu.ecc", ERROR, ECC_ERRORS),
        ({"remap_pending": True}, "gpu.remap", ERROR, "a bad row of its memory is replaced at the next reset"),
        ({"remap_failed": True, "remap_pending": True}, "gpu.remap", ERROR, NOT_REPLACED),
        ({"recovery": "Drain and Reset"}, "gpu.recovery", ERROR, 'the driver asks for "Drain and Reset"'),
        ({"slowdowns": ("hw_slowdown", "sw_thermal_slowdown")}, "gpu.throttle", ERROR, SLOWED),
        ({"clock_mhz": 1979}, "gpu.clock", WARNING, "application clock 1979 MHz, the default is 1980 MHz"),
        ({"pcie_width": 8}, "gpu.pcie", ERROR, "PCIe width x8, it can x16"),
        ({"pcie_gen": 4}, "gpu.pcie", ERROR, "PCIe generation 4, it can 5"),
        ({"mig": "Enabled"}, "gpu.mig", WARNING, "MIG is on"),
        ({"links_up": 17}, "gpu.nvlink", ERROR, "17 NVLinks up, others have 18"),
        ({"memory_used_mib": 1024}, "gpu.memory", WARNING, "1024 MiB in use, but nvidia-smi shows no process"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_gpu(changes: dict[str, Any], key: str, severity: str, what: str) -> None:
    problem = one(**changes)
    assert problem.what == f"GPU 1 (0000:02:00.0): {what}"
    finding = problem.finding("gpu-1")
    assert (finding.key, finding.severity, bool(finding.todo)) == (key, severity, True)


@pytest.mark.parametrize(
    "changes", [{"memory_used_mib": 1023}, {"clock_mhz": 1981}, {"pcie_gen": 1, "performance_state": "P8"}]
)
def test_what_is_not_wrong_with_a_gpu(changes: dict[str, Any]) -> None:
    assert judged(replace(HEALTHY_GPUS, gpus=(replace(HEALTHY_GPU, **changes),))) == []


def test_memory_of_slices_belongs_to_processes_that_are_not_listed() -> None:
    assert one(mig="Enabled", memory_used_mib=40_000).key == "gpu.mig"


def test_settings_of_the_machine() -> None:
    assert one(persistence="Disabled").what == "persistence mode is off for GPU 1"
    assert one(vbios="1").what == "NVIDIA H100 80GB HBM3 with different VBIOS: 1 x 1, 1 x 96.00.89.00.01"
    other = replace(HEALTHY_GPU, vbios="1", model="NVIDIA H200")
    assert judged(replace(HEALTHY_GPUS, gpus=(HEALTHY_GPU, other))) == []
    assert one(fabric="In Progress").what == "the NVSwitch fabric is not complete: GPU 1: In Progress"
    assert only(replace(HEALTHY_GPUS, fabric_manager=False)).what == "4 NVSwitches, but nv-fabricmanager does not run"
    assert judged(replace(HEALTHY_GPUS, fabric_manager=False, nvswitches=0)) == []


def test_gpus_that_nobody_uses_may_be_as_they_like() -> None:
    bad = replace(HEALTHY_GPUS, error="no answer", gpus=(replace(HEALTHY_GPU, uncorrected=1),))
    assert judged(bad, expected=Expectation(gpus=0)) == []
    assert [problem.key for problem in judged(bad, expected=Expectation(gpus=1))] == ["gpu.answers", "gpu.ecc"]


def test_programs_of_the_cluster_may_use_gpus_and_others_may_not() -> None:
    machine = replace(HEALTHY, containers={"mvp-0": replace(container("mvp-0"), id=OURS)})
    ours, theirs = (Process(pid, "python3", "", place, 70_000) for pid, place in ((1, OURS), (2, THEIRS)))
    monitor = Process(3, "exporter", memory_mib=1023)

    def with_processes(*processes: Process) -> Gpus:
        return replace(HEALTHY_GPUS, gpus=(replace(HEALTHY_GPU, processes=processes, memory_used_mib=80_000),))

    assert judged(with_processes(ours), machine=machine) == []
    problem = only(with_processes(ours, theirs), machine=machine)
    assert problem.what.endswith(
        f"70000 MiB in use by programs outside of the cluster: python3 (pid 2, container {THEIRS[:12]})"
    )
    assert problem.severity == ERROR
    assert only(with_processes(monitor), machine=machine).severity == WARNING
    assert only(with_processes(replace(monitor, memory_mib=1024)), machine=machine).severity == ERROR
    assert only(with_processes(*[monitor] * 7), machine=machine).what.endswith(" and 2 more")
    assert judged(with_processes(Process(4, "ray::WorkerDict", memory_mib=70_000, of_node=True))) == []


def test_memory_of_processes_that_are_not_shown_is_that_of_jobs_where_a_node_runs() -> None:
    """In a container of a platform, nvidia-smi shows no processes."""
    gpus = replace(HEALTHY_GPUS, gpus=(replace(HEALTHY_GPU, memory_used_mib=80_000),))
    host = ProcessHost("", "", "", "", FoundProcess(), (), ())
    assert only(gpus, machine=replace(HEALTHY, process=host)).key == "gpu.memory"
    running = replace(HEALTHY, process=replace(host, node=FoundProcess(state="running")))
    assert judged(gpus, machine=running) == []


def test_xids() -> None:
    xids = parse_xids((RECORDED / "kernel_log.txt").read_text())
    # That of a job's own mistake is left out.
    warning, error = judged(replace(HEALTHY_GPUS, xids=xids))
    assert (warning.severity, error.severity) == (WARNING, ERROR)
    assert error.what == "GPU 0000:83:00: Xid 79 2 times in the kernel log: GPU has fallen off the bus."
    assert warning.what.startswith("GPU 0000:5e:00: Xid 63 in the kernel log: ")


def test_a_kernel_log_that_cannot_be_read_is_said() -> None:
    problem = only(replace(HEALTHY_GPUS, log_error="dmesg: not permitted"))
    assert (problem.key, problem.severity) == ("gpu.xid", NOTE)
    assert "not permitted" in problem.what


# --- Between machines


def different(**others: Gpus) -> list[tuple[str, str]]:
    facts = {"a": HEALTHY_GPUS, "b": HEALTHY_GPUS, **others}
    return [(each.where, each.key) for each in differences(gpu.TOPIC, facts)]


def test_machines_are_compared() -> None:
    assert different(c=HEALTHY_GPUS, d=Gpus(installed=False)) == []
    assert different(c=replace(HEALTHY_GPUS, driver="1")) == [("c", "gpu.driver")]
    assert different(c=replace(HEALTHY_GPUS, gpus=HEALTHY_GPUS.gpus[:1])) == [("c", "gpu.same")]
    vbios = tuple(replace(each, vbios="1") for each in HEALTHY_GPUS.gpus)
    assert different(c=replace(HEALTHY_GPUS, gpus=vbios)) == [("c", "gpu.vbios")]
    links = tuple(replace(each, links_up=12) for each in HEALTHY_GPUS.gpus)
    assert different(c=replace(HEALTHY_GPUS, gpus=links)) == [("c", "gpu.nvlink")]


def test_the_hardware_table() -> None:
    assert gpu.columns(HEALTHY_GPUS) == {
        "GPUs": "2 x NVIDIA H100 80GB HBM3",
        "driver": "550.90.07",
        "VBIOS": "96.00.89.00.01",
        "NVLinks": "18",
    }
    assert gpu.columns(Gpus()) == {}


# --- Programs


def test_a_machine_without_nvidia_smi(tree: Tree) -> None:
    assert gpu.read(tree.reader()) == Gpus(installed=False)


def test_a_machine_that_answers(tree: Tree) -> None:
    tree.program(
        "nvidia-smi",
        f"[[ $1 == nvlink ]] && cat {RECORDED}/nvlink_status.txt || cat {RECORDED}/nvidia_smi_blackwell.xml",
    )
    tree.prints("dmesg", "kernel_log.txt")
    tree.process(4242, "python3", container=THEIRS)
    tree.process(7, "nv-fabricmanage")
    for number in range(4):
        tree.file(f"/proc/driver/nvidia-nvswitch/devices/{number}")
    found = gpu.read(tree.reader())
    assert found.gpus[0].processes[0].container == THEIRS
    assert [xid.number for xid in found.xids] == [31, 63, 79]
    assert (found.nvswitches, found.fabric_manager, found.log_error, found.error) == (4, True, "", "")
    # One GPU has no links to others.
    assert found.gpus[0].links_up == 0


def test_links_are_asked_for_several_gpus(tree: Tree) -> None:
    tree.program(
        "nvidia-smi",
        f"[[ $1 == nvlink ]] && exec cat {RECORDED}/nvlink_status.txt\n"
        "echo \"<l><gpu id='1'><a/></gpu><gpu id='2'><a/></gpu></l>\"",
    )
    assert [each.links_up for each in gpu.read(tree.reader()).gpus] == [6, 4]


def test_a_driver_that_fails(tree: Tree) -> None:
    tree.program("nvidia-smi", 'echo "Failed to initialize NVML: Driver/library version mismatch"; exit 18')
    tree.program("dmesg", 'echo "dmesg: read kernel buffer failed: Operation not permitted" >&2; exit 1')
    tree.program("journalctl", "exit 0")
    found = gpu.read(tree.reader())
    assert found.error == "Failed to initialize NVML: Driver/library version mismatch"
    assert "Operation not permitted" in found.log_error
    assert "journalctl: exit code 0 without a message" in found.log_error
    assert judged(found)[0].key == "gpu.answers"


def test_a_program_that_prints_broken_xml(tree: Tree) -> None:
    tree.program("nvidia-smi", "echo '<nvidia_smi_log><gpu>'")
    assert gpu.read(tree.reader()).error.startswith("nvidia-smi -q -x prints no XML: ")


def test_the_journal_is_read_where_dmesg_is_forbidden(tree: Tree) -> None:
    tree.program("nvidia-smi", "echo '<l/>'")
    tree.program("dmesg", "exit 1")
    tree.prints("journalctl", "kernel_log.txt")
    found = gpu.read(tree.reader())
    assert (len(found.xids), found.log_error) == (3, "")


def test_a_driver_that_hangs(tree: Tree) -> None:
    # The second process is in a session of its own: nothing kills it, as nothing kills one that hangs in the kernel.
    tree.program("nvidia-smi", "setsid sleep 20 & sleep 600")
    found = gpu.read(tree.reader(seconds=4))
    assert found.error.startswith("no answer within")
    assert judged(found)[0].finding("gpu-1").severity == ERROR
