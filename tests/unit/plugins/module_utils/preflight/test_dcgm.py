"""A fake dcgmi."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.argus.verl.plugins.module_utils.findings import ERROR, NOTE, WARNING
from ansible_collections.argus.verl.plugins.module_utils.preflight import dcgm
from ansible_collections.argus.verl.plugins.module_utils.preflight.dcgm import Diagnostics, Failed, parse_diagnostics
from ansible_collections.argus.verl.plugins.module_utils.preflight.expectation import Expectation
from preflight_tree import RECORDED, Tree, context
from samples import HEALTHY

FAILED = (
    Failed("Persistence Mode", "0,1,2,3", "warn", "Persistence mode for GPU 0 is disabled."),
    Failed("GPU Memory", "1", "fail", "Double-bit ECC error"),
)


def test_a_machine_without_dcgm(tree: Tree) -> None:
    assert dcgm.read(tree.reader()) == Diagnostics()
    (problem,) = dcgm.judge(Diagnostics(), context())
    assert (problem.check.key, problem.severity) == ("dcgm.diag", NOTE)
    assert list(dcgm.judge(Diagnostics(), context(machine=replace(HEALTHY, gpus=[])))) == []
    assert list(dcgm.judge(Diagnostics(), context(expected=Expectation(gpus=0)))) == []


def test_recorded_diagnostics(tree: Tree) -> None:
    # A failed test is an exit code of its own.
    tree.prints("dcgmi", "dcgm_diag_3.json", code=226)
    found = dcgm.read(tree.reader())
    assert found == Diagnostics(True, "", 4, FAILED)
    warned, failed = (problem.finding("gpu-1") for problem in dcgm.judge(found, context()))
    assert (warned.severity, failed.severity) == (WARNING, ERROR)
    assert failed.what == 'test "GPU Memory" of GPU 1: fail: Double-bit ECC error'


def test_newer_versions_have_another_outermost_key_and_text_before() -> None:
    text = (RECORDED / "dcgm_diag_3.json").read_text().replace("DCGM GPU Diagnostic", "DCGM Diagnostic")
    found = parse_diagnostics(f"Running …\n{text}")
    assert found is not None
    assert found.failed == FAILED


@pytest.mark.parametrize("text", ["", "no json", "{}", '{"DCGM Diagnostic": {}}', "{"])
def test_other_output_is_no_result(text: str) -> None:
    assert parse_diagnostics(text) is None


@pytest.mark.parametrize(
    ("script", "error"),
    [
        ('echo "Error: unable to establish a connection to the specified host" >&2; exit 235', "Error: unable to"),
        ("exit 3", "exit code 3 without"),
        ("sleep 600", "no answer within"),
    ],
)
def test_dcgm_that_fails_or_hangs(tree: Tree, script: str, error: str) -> None:
    tree.program("dcgmi", script)
    found = dcgm.read(tree.reader(seconds=4))
    assert found.error.startswith(error)
    (problem,) = dcgm.judge(found, context())
    assert problem.finding("gpu-1").severity == ERROR
    assert error in problem.what


def test_a_failure_without_gpu_and_reason() -> None:
    found = Diagnostics(True, failed=(Failed("NVML Library", "", "fail", ""),))
    assert [problem.what for problem in dcgm.judge(found, context())] == ['test "NVML Library": fail']
