from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from ansible_collections.argus.verl.plugins.action import preflight_report
from ansible_collections.argus.verl.plugins.action.preflight_report import save
from ansible_collections.argus.verl.plugins.module_utils.argus.common.findings import ERROR, Finding
from ansible_collections.argus.verl.plugins.module_utils.cluster.system import System
from ansible_collections.argus.verl.plugins.module_utils.preflight.checks import FAST, Context, Expectation
from ansible_collections.argus.verl.plugins.module_utils.preflight.judgement import Judgement, ProbedHost, judge
from samples import H100, HEALTHY

ECC = Finding("a", "x", "y", ERROR, "gpu.ecc")


def result() -> Judgement:
    """Of two machines, of which the second has not answered."""
    machine = replace(HEALTHY, system=System(kernel="6.8"))
    return judge(["a", "b"], {"a": ProbedHost(Context("a", machine, Expectation()), [ECC])}, FAST)


def test_hardware_table() -> None:
    header, rows = preflight_report.hardware_rows(result())
    assert header == ["machine", "GPUs", "driver", "kernel"]
    assert rows == [["a", f"8 x {H100}", "550.90.07", "6.8"], ["b", "-", "-", "-"]]


def test_findings_show_their_keys() -> None:
    findings = [
        Finding("a", "x", "y", ERROR, "gpu.ecc"),
        Finding("b", "x", "y", ERROR, "gpu.ecc"),
        Finding("c", "z", ""),
    ]
    assert [(each.where, each.what) for each in preflight_report.with_keys(findings)] == [
        ("a, b", "x [gpu.ecc]"),
        ("c", "z"),
    ]


def test_file(tmp_path: Path) -> None:
    file = save(str(tmp_path / "new"), "prod", result())
    assert file == tmp_path / "new" / "prod.json"
    saved = json.loads(file.read_text())
    assert (saved["cluster"], saved["tier"], saved["silent"]) == ("prod", "fast", ["b"])
    assert saved["findings"] == [ECC.as_dict()]
    assert saved["hardware"]["a"]["kernel"] == "6.8"
