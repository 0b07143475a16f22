"""The script that builds the website of the documentation."""

from __future__ import annotations

from pathlib import Path

from script_module import script_module

from docs import pages


def test_links_to_what_is_not_copied_lead_to_the_repository() -> None:
    build = script_module(pages.REPO / "tools/build_docs.py")
    text = "[a](b.md#c) [d](../inventories/dev) [e](https://example.org/x.md) [f](#here)"
    page, copied = Path("docs/page.md"), {Path("docs/b.md")}
    repository = "https://github.com/argus-verl/argus.verl/tree/main/inventories/dev"
    assert build.with_links(page, text, copied) == text.replace("../inventories/dev", repository)


def test_the_installation_has_hashes() -> None:
    text = (pages.REPO / "docs" / "install.md").read_text()
    commands = [line for line in text.splitlines() if "pip install" in line]
    assert len(commands) > 1 and all("--require-hashes" in line for line in commands if "argus_verl-" not in line)
    assert "community.docker <" not in text
