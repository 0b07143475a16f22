#!/usr/bin/env python3
"""Build the website of the documentation in .cache/docs.

All Markdown pages are copied into the same directories, so that links between them work as in the repository.
antsibull-docs writes the pages of modules, roles and filters, and Sphinx makes HTML of both. Warnings are errors.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import yaml

REPO = Path(__file__).resolve().parents[1]
SOURCE = REPO / ".cache" / "docs-source"
TARGET = REPO / ".cache" / "docs"
SETTINGS = REPO / "tools" / "docs"
LINK = re.compile(r"(?P<text>\[[^\[\]]*\]\()(?P<target>[^)#\s]+)(?P<anchor>#[^)\s]*)?\)")
# The table of contents that antsibull-docs writes into each page.
LOCAL_CONTENTS = re.compile(r"^\.\. contents::\n(?: +:.*\n)+", re.MULTILINE)
# A line of antsibull-docs that refers to a page of Ansible's documentation.
FOREIGN_LABEL = re.compile(r"^See :ref:`callback_plugins`.*\n", re.MULTILINE)
# A page in the index of antsibull-docs. The sidebar gets its name and kind as a title, instead of the long one.
INDEX_ENTRY = re.compile(r"^    (?P<name>\w+)_(?P<kind>module|filter|role|callback)$", re.MULTILINE)
# The sections of the sidebar, with their pages without suffix. `*` stands for all pages of a folder not listed before.
SIDEBAR = {
    "Begin": [
        "docs/index", "docs/install", "docs/production", "docs/platform", "docs/slurm", "docs/gpu_box",
        "docs/from_compose",
    ],
    "Work": ["docs/cluster", "docs/staging", "docs/jobspec", "docs/recipes", "docs/submit", "docs/after_the_run"],
    "Understand": [
        "docs/life_of_a_job", "docs/failures", "docs/warnings", "docs/faults", "docs/security", "docs/preflight",
        "docs/monitoring", "docs/debugging", "docs/troubleshooting",
    ],
    "Reference": [
        "docs/short_command", "docs/archive", "docs/ports", "docs/durations", "docs/files_on_machines", "docs/images",
        "docs/podman", "docs/rocm", "docs/torchrun", "docs/cpu_backend", "collections/index",
    ],
    "Roles": ["roles/*"],
    "Project": ["CONTRIBUTING", "AGENTS", "*"],
}  # fmt: skip


def run(*command: str) -> None:
    done = subprocess.run(command, cwd=REPO, check=False)
    if done.returncode:
        raise SystemExit(f"tools/build_docs.py: {command[0]} failed with exit code {done.returncode}")


def list_files(*patterns: str) -> list[Path]:
    """The files that git tracks or would add, by their paths in the repository."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", *patterns]
    names = subprocess.run(command, cwd=REPO, capture_output=True, text=True, check=True).stdout.splitlines()
    return [Path(name) for name in sorted(names) if (REPO / name).is_file()]


def with_links(page: Path, text: str, copied: set[Path]) -> str:
    """The text of a page, in which links to files that are not copied lead to the repository on the web."""
    repository = yaml.safe_load((REPO / "galaxy.yml").read_text(encoding="utf-8"))["repository"]

    def new_link(match: re.Match[str]) -> str:
        if "://" in match["target"]:
            return match[0]
        target = Path(os.path.normpath(page.parent / match["target"]))
        if target in copied:
            return match[0]
        return f"{match['text']}{repository}/tree/main/{target})"

    return LINK.sub(new_link, text)


def tables_of_contents(pages: list[str]) -> str:
    """The directives `toctree` of the start page, from which Sphinx builds the sidebar."""
    unlisted = [page for page in pages if page != "README"]
    blocks = []
    for title, names in SIDEBAR.items():
        entries: list[str] = []
        for name in names:
            folder = name.removesuffix("*")
            entries += [page for page in unlisted if page.startswith(folder)] if name.endswith("*") else [name]
            unlisted = [page for page in unlisted if page not in entries]
        blocks.append("\n".join(["```{toctree}", ":hidden:", f":caption: {title}", "", *entries, "```"]))
    return "\n\n".join(blocks) + "\n"


def write_source() -> None:
    shutil.rmtree(SOURCE, ignore_errors=True)
    pages, images = list_files("*.md"), list_files("docs/*.svg", "docs/pictures/*.png")
    for file in [*pages, *images]:
        copy = SOURCE / file
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPO / file, copy)
        if file in pages:
            copy.write_text(with_links(file, copy.read_text(encoding="utf-8"), {*pages, *images}), encoding="utf-8")
    start = SOURCE / "README.md"
    names = [str(page.with_suffix("")) for page in pages]
    start.write_text(f"{start.read_text(encoding='utf-8')}\n{tables_of_contents(names)}", encoding="utf-8")


def write_reference(folder: Path) -> None:
    """Write the pages of modules, roles and filters."""
    folder.mkdir()
    run(
        "antsibull-docs",
        "collection", "--use-current", "--squash-hierarchy", "--no-add-antsibull-docs-version", "--fail-on-error",
        "--dest-dir", str(folder), "argus.verl",
    )  # fmt: skip
    for page in folder.glob("*.rst"):
        text = FOREIGN_LABEL.sub("", LOCAL_CONTENTS.sub("", page.read_text(encoding="utf-8")))
        if page.stem == "index":
            text = INDEX_ENTRY.sub(r"    \g<name> (\g<kind>) <\g<name>_\g<kind>>", text)
            text = text.replace("Argus.Verl\n==========", "Modules, roles and filters\n==========================", 1)
        page.write_text(text, encoding="utf-8")


def main() -> None:
    write_source()
    write_reference(SOURCE / "collections")
    shutil.rmtree(TARGET, ignore_errors=True)
    run(
        "sphinx-build", "--builder", "html", "--conf-dir", str(SETTINGS), "--doctree-dir", str(SOURCE / ".doctrees"),
        "--fail-on-warning", "--keep-going", "--quiet", str(SOURCE), str(TARGET),
    )  # fmt: skip
    shutil.copy(TARGET / "README.html", TARGET / "index.html")
    sys.stdout.write(f"{TARGET}/index.html\n")


if __name__ == "__main__":
    main()
