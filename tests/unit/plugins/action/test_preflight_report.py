from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from ansible_collections.argus.verl.plugins.action import preflight_report
from ansible_collections.argus.verl.plugins.action.preflight_report import page, save
from ansible_collections.argus.verl.plugins.module_utils.argus.common.findings import ERROR, WARNING, Finding
from ansible_collections.argus.verl.plugins.module_utils.preflight.checks import Context, Expectation
from ansible_collections.argus.verl.plugins.module_utils.preflight.judgement import Judged, Probed, Section, judged
from ansible_collections.argus.verl.plugins.module_utils.preflight.table import FAST
from samples import HEALTHY


def result(findings: list[Finding] | None = None, **options: Any) -> Judged:
    """Of two machines, of which the second has not answered."""
    host = {"columns": {"kernel": "6.8"}, "compared": []}
    probed = {"a": Probed(Context("a", HEALTHY, Expectation()), findings or [], {"host": host})}
    return judged(["a", "b"], probed, FAST, **options)


def test_hardware_table() -> None:
    assert preflight_report.hardware_rows(result()) == (["machine", "kernel"], [["a", "6.8"], ["b", "-"]])


def test_findings_show_their_keys() -> None:
    findings = [
        Finding("a", "x", "y", ERROR, "gpu.ecc"),
        Finding("b", "x", "y", ERROR, "gpu.ecc"),
        Finding("c", "z", ""),
    ]
    assert [(each.where, each.what) for each in preflight_report.shown(findings)] == [
        ("a, b", "x [gpu.ecc]"),
        ("c", "z"),
    ]


def test_page_is_complete_and_self_contained() -> None:
    hostile = Finding("a", "<script>alert(1)</script>\x1b[31m", "a & b", ERROR, "gpu.ecc")
    silent = Finding("b", "does not answer", "", WARNING, "machine.reachable")
    section = Section("Shared <root>", ["machine", "write"], [["a", "<b>"]])
    text = page(result([hostile], others=[silent], sections=[section]), "<mvp>", "2026-01-01")
    assert "<script" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;\\x1b[31m" in text
    assert not re.search(r"(src|href|url|@import|http)", text)
    assert "Preflight of cluster &lt;mvp&gt;" in text
    assert "a &amp; b" in text
    assert "<td>&lt;b&gt;</td>" in text
    assert "Shared &lt;root&gt;" in text
    assert '<span class="error">1 error</span>, <span class="warning">1 warning</span>' in text
    assert '<span class="quiet">0 notes</span>' in text
    # What was found is first in the matrix.
    matrix = text[text.index("<h2>Checks</h2>") :]
    assert matrix.index("gpu.ecc") < matrix.index("machine.reachable") < matrix.index("gpu.xid")
    assert re.search(r"gpu\.ecc</code>.*?<span class=\"error\">error</span></td><td><span class=\"\">-</span>", matrix)
    assert re.search(r"gpu\.xid</code>.*?<span class=\"ok\">ok</span></td><td><span class=\"\">-</span>", matrix)


def test_files(tmp_path: Path) -> None:
    files = save(str(tmp_path / "new"), "prod", result())
    assert files == [str(tmp_path / "new" / "prod.html"), str(tmp_path / "new" / "prod.json")]
    assert "<p>None.</p>" in (tmp_path / "new" / "prod.html").read_text()
    saved = json.loads((tmp_path / "new" / "prod.json").read_text())
    assert list(saved) == ["time", "cluster", "tier", "hosts", "silent", "checks", "findings", "hardware", "sections"]
    assert (saved["checks"]["a"]["gpu.ecc"], saved["checks"]["b"]["gpu.ecc"]) == ("ok", "")
