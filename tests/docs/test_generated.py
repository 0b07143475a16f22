"""The generated parts of the documentation are current."""

from __future__ import annotations

import subprocess
import sys

from docs import pages


def test_generated_tables_are_current() -> None:
    command = [sys.executable, "tools/generate_docs.py", "--check"]
    done = subprocess.run(command, cwd=pages.REPO, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"run make generate\n{done.stdout}{done.stderr}"
    for page in (pages.REPO / "docs" / "jobspec.md", *pages.REPO.glob("roles/*/README.md")):
        text = page.read_text(encoding="utf-8")
        assert text.count("<!-- begin generated: ") == text.count("<!-- end generated -->") > 0, page
