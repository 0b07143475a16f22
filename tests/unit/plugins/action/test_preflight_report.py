from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from ansible_collections.argus.verl.plugins.action import preflight_report
from ansible_collections.argus.verl.plugins.action.preflight_report import save
from ansible_collections.argus.verl.plugins.module_utils.argus.common.findings import ERROR, Finding
from ansible_collections.argus.verl.plugins.module_utils.cluster.system import System
from ansible_collections.argus.verl.plugins.module_utils.preflight.checks import FAST, Context, Expectation
from ansible_collections.argus.verl.plugins.module_utils.preflight.judgement import ProbedHost, judge
from samples import H100, HEALTHY

ECC = Finding("a", "x", "y", ERROR, "gpu.ecc")


def test_what_is_shown_and_saved(tmp_path: Path) -> None:
    """Of two machines, of which the second has not answered."""
    machine = replace(HEALTHY, system=System(kernel="6.8"))
    result = judge(["a", "b"], {"a": ProbedHost(Context("a", machine, Expectation()), [ECC])}, FAST)
    _header, rows = preflight_report.hardware_rows(result)
    assert rows == [["a", f"8 x {H100}", "550.90.07", "6.8"], ["b", "-", "-", "-"]]
    same = preflight_report.with_keys([ECC, replace(ECC, where="b"), Finding("c", "z", "")])
    assert [(finding.where, finding.problem) for finding in same] == [("a, b", "x [gpu.ecc]"), ("c", "z")]
    file = save(str(tmp_path / "new"), "prod", result)
    assert file == tmp_path / "new" / "prod.json"
    saved = json.loads(file.read_text())
    assert (saved["cluster"], saved["tier"], saved["silent"]) == ("prod", "fast", ["b"])
    assert saved["findings"] == [ECC.as_dict()]
    assert saved["hardware"]["a"]["kernel"] == "6.8"
