from __future__ import annotations

import pytest
from ansible_collections.argus.verl.plugins.module_utils.argus.common.findings import WARNING, Finding, findings_table
from ansible_collections.argus.verl.plugins.plugin_utils.reporting import failure, report_lines

ERROR = Finding("gpu-0", "is broken", "fix it")
WARN = Finding("gpu-1", "is old", "replace it", WARNING)


def test_report_has_title_table_findings_and_text() -> None:
    assert report_lines("Cluster mvp", ["node"], [["head"], ["worker-0"]], [ERROR], ["Dashboard: x"]) == [
        "Cluster mvp",
        "NODE\nhead\nworker-0",
        "",
        findings_table([ERROR]),
        "Dashboard: x",
    ]


@pytest.mark.parametrize(
    ("findings", "fail_when", "message"),
    [
        ([], None, ""),
        ([WARN], "", ""),
        ([ERROR, WARN], None, "1 error, see the table above"),
        ([ERROR, ERROR], None, "2 errors, see the table above"),
        ([], "The cluster is not ready", "The cluster is not ready"),
        ([ERROR], "It is not ready", "1 error, see the table above. It is not ready"),
    ],
)
def test_failure(findings: list[Finding], fail_when: str | None, message: str) -> None:
    assert failure(findings, fail_when) == message
