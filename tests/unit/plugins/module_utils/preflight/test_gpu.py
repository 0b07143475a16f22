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
from ansible_collections.argus.verl.plugins.module_utils.preflight.gpu import Gpus, GpuState, parse_smi, parse_xids
from ansible_collections.argus.verl.plugins.module_utils.preflight.reading import Process
from preflight_tree import OURS, RECORDED, THEIRS, Tree, context, differences
from samples import HEALTHY, container

HEALTHY_GPU = GpuState(
    "0000:01:00.0",
    "NVIDIA H100 80GB HBM3",
    mig="Disabled",
    uncorrected=0,
    uncorrected_ever=0,
    memory_used_mib=4,
)
HEALTHY_GPUS = Gpus("550.90.07", (HEALTHY_GPU, replace(HEALTHY_GPU, bus="0000:02:00.0")))


ECC_ERRORS = "2 uncorrected memory errors since the driver was loaded, 5 ever"
NOT_REPLACED = "a row of its memory could not be replaced"
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
            mig="Enabled",
            uncorrected=0,
            uncorrected_ever=0,
            memory_used_mib=50,
        ),
    )
    assert [problem.key for problem in judged(found)] == ["gpu.mig"]


def test_recorded_h200_is_healthy() -> None:
    found = parse_smi((RECORDED / "nvidia_smi_h200.xml").read_text())
    [each] = found.gpus
    assert (found.driver, each.bus, each.model) == ("580.159.04", "0000:00:06.0", "NVIDIA H200")
    # "None" is no value of what the driver asks for.
    assert (each.uncorrected, each.mig, each.recovery) == (0, "Disabled", "")
    assert judged(found) == []


def test_recorded_blackwell_has_other_elements() -> None:
    (found,) = parse_smi((RECORDED / "nvidia_smi_blackwell.xml").read_text()).gpus
    # "N/A" and "None" are no values.
    assert (found.uncorrected, found.recovery, found.mig) == (None, "", "")
    assert found.processes == (Process(4242, "python3", memory_mib=65078),)
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
    ],
)
def test_elements_that_change(before: str, after: str, field: str, value: object) -> None:
    text = (RECORDED / "nvidia_smi_a100.xml").read_text()
    assert before in text
    (found,) = parse_smi(text.replace(before, after, 1)).gpus
    assert getattr(found, field) == value


def test_elements_of_older_drivers() -> None:
    errors = "<volatile><double_bit><total>4</total></double_bit></volatile>"
    (found,) = parse_smi(f"<a><gpu id='1'><ecc_errors>{errors}</ecc_errors></gpu></a>").gpus
    assert found.uncorrected == 4


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
        ({"mig": "Enabled"}, "gpu.mig", WARNING, "MIG is on"),
        ({"memory_used_mib": 1024}, "gpu.memory", WARNING, "1024 MiB in use, but nvidia-smi shows no process"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_gpu(changes: dict[str, Any], key: str, severity: str, what: str) -> None:
    problem = one(**changes)
    assert problem.what == f"GPU 1 (0000:02:00.0): {what}"
    finding = problem.finding("gpu-1")
    assert (finding.key, finding.severity, bool(finding.todo)) == (key, severity, True)


def test_a_little_memory_may_be_in_use() -> None:
    assert judged(replace(HEALTHY_GPUS, gpus=(replace(HEALTHY_GPU, memory_used_mib=1023),))) == []


def test_memory_of_slices_belongs_to_processes_that_are_not_listed() -> None:
    assert one(mig="Enabled", memory_used_mib=40_000).key == "gpu.mig"


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


def test_the_hardware_table() -> None:
    assert gpu.columns(HEALTHY_GPUS) == {"GPUs": "2 x NVIDIA H100 80GB HBM3", "driver": "550.90.07"}
    assert gpu.columns(Gpus()) == {}


# --- Programs


def test_a_machine_without_nvidia_smi(tree: Tree) -> None:
    assert gpu.read(tree.reader()) == Gpus(installed=False)


def test_a_machine_that_answers(tree: Tree) -> None:
    tree.prints("nvidia-smi", "nvidia_smi_blackwell.xml")
    tree.prints("dmesg", "kernel_log.txt")
    tree.process(4242, "python3", container=THEIRS)
    found = gpu.read(tree.reader())
    assert found.gpus[0].processes[0].container == THEIRS
    assert [xid.number for xid in found.xids] == [31, 63, 79]
    assert (found.log_error, found.error) == ("", "")


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
