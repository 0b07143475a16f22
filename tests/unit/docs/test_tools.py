"""The scripts that write the documentation."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from script_module import script_module
from unit.docs import pages

TOOLS = pages.REPO / "tools"


def script(name: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(TOOLS))
    return script_module(TOOLS / f"{name}.py")


@pytest.fixture
def build(monkeypatch: pytest.MonkeyPatch) -> Any:
    return script("build_docs", monkeypatch)


def test_a_page_that_is_not_current_is_reported_and_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    generate = script("generate_docs", monkeypatch)
    page = tmp_path / "page.md"
    stale = "<!-- begin generated: one -->\nold\n<!-- end generated -->\n"
    page.write_text(stale)
    monkeypatch.setattr(generate, "REPO", tmp_path)
    monkeypatch.setattr(generate, "pages", lambda: [(page, {"one": "new\n"})])
    monkeypatch.setattr("sys.argv", ["generate_docs.py", "--check"])
    assert generate.main() == 1
    assert page.read_text() == stale
    assert capsys.readouterr().out == "page.md: is not current; run make generate\n"
    monkeypatch.setattr("sys.argv", ["generate_docs.py"])
    assert generate.main() == 0
    assert page.read_text() == stale.replace("old", "new")
    assert capsys.readouterr().out == "page.md: written\n"
    monkeypatch.setattr("sys.argv", ["generate_docs.py", "--check"])
    assert generate.main() == 0


def test_links_to_what_is_not_copied_lead_to_the_repository(build: ModuleType) -> None:
    text = "[a](b.md#c) [d](../inventories/dev) [e](https://example.org/x.md) [f](#here)"
    page, copied = Path("docs/page.md"), {Path("docs/b.md")}
    repository = "https://github.com/argus-verl/argus.verl/tree/main/inventories/dev"
    assert build.with_links(page, text, copied) == text.replace("../inventories/dev", repository)


def test_the_sidebar_has_every_page_once(build: ModuleType) -> None:
    names = [str(page.relative_to(pages.REPO).with_suffix("")) for page in pages.pages()]
    entries = [line for line in build.contents(names).splitlines() if line and not line.startswith((":", "`"))]
    assert sorted(entries) == sorted({*names, "collections/index"} - {"README"})


def test_the_installation_has_hashes() -> None:
    text = (pages.REPO / "docs" / "install.md").read_text()
    commands = [line for line in text.splitlines() if "pip install" in line]
    assert len(commands) > 1 and all("--require-hashes" in line for line in commands if "argus_verl-" not in line)
    assert "community.docker <" not in text
