"""Every relative link of every page leads to a file and a heading that exist."""

from __future__ import annotations

from pathlib import Path

from unit.docs import pages


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


def broken(page: Path) -> list[str]:
    return [f"{line.place}: {target}: {why}" for line, target in pages.links(page) if (why := problem(page, target))]


def test_no_link_is_broken() -> None:
    found = [text for page in pages.pages() for text in broken(page)]
    assert not found, "\n".join(found)


def test_every_page_of_docs_is_linked_from_another() -> None:
    linked = {
        (page.parent / target.partition("#")[0]).resolve()
        for page in pages.pages()
        for _line, target in pages.links(page)
        if not target.startswith("#")
    }
    lost = [str(page) for page in pages.pages() if pages.REPO / "docs" in page.parents and page not in linked]
    assert not lost


def test_files_and_headings_are_found(tmp_path: Path) -> None:
    (tmp_path / "other.md").write_text("# A `heading`, of its own\n## Twice\n## Twice\n```\n# none\n```\n")
    good = ["other.md", "other.md#a-heading-of-its-own", "other.md#twice-1", "#here", "https://example.org/#none"]
    bad = ["none.md", "other.md#none", "#none"]
    page = tmp_path / "page.md"
    page.write_text("# Here\n`[no link](none.md)`\n" + "".join(f"[a link]({target})\n" for target in (*good, *bad)))
    assert [text.split(": ")[1] for text in broken(page)] == bad
