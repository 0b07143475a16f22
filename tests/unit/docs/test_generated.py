"""The generated parts of the documentation are current."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from unit.docs import pages

GENERATED = [pages.REPO / "docs" / "jobspec.md", *sorted(pages.REPO.glob("roles/*/README.md"))]


def test_generated_tables_are_current() -> None:
    command = [sys.executable, "tools/generate_docs.py", "--check"]
    done = subprocess.run(command, cwd=pages.REPO, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"run make generate\n{done.stdout}{done.stderr}"


@pytest.mark.parametrize("page", GENERATED, ids=lambda page: str(page.relative_to(pages.REPO)))
def test_every_page_has_its_tables(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert text.count("<!-- begin generated: ") == text.count("<!-- end generated -->") > 0
