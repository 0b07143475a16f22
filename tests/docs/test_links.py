"""Every relative link of every page leads to a file and a heading that exist."""

from __future__ import annotations

from pathlib import Path

from docs import pages


def problem(page: Path, target: str) -> str:
    if target.startswith(("http://", "https://", "mailto:")):
        return ""
    name, _hash, anchor = target.partition("#")
    file = (page.parent / name).resolve() if name else page
    if not file.exists():
        return f"no file {name}"
    if anchor and anchor not in pages.anchors(file):
        return f"no heading #{anchor} in {file.name}"
    return ""


def test_no_link_is_broken() -> None:
    links = [(page, line.place, target) for page in pages.pages() for line, target in pages.links(page)]
    assert len(links) > 100
    broken = [f"{place}: {target}: {why}" for page, place, target in links if (why := problem(page, target))]
    assert not broken, "\n".join(broken)


def test_every_page_of_docs_is_linked_from_another() -> None:
    linked = {
        (page.parent / target.partition("#")[0]).resolve()
        for page in pages.pages()
        for _line, target in pages.links(page)
        if not target.startswith("#")
    }
    lost = [str(page) for page in pages.pages() if pages.REPO / "docs" in page.parents and page not in linked]
    assert not lost
