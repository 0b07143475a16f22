# SPDX-License-Identifier: GPL-3.0-or-later
"""Sources of snapshots of verl that the controller sends: releases by pip, repositories by git, and directories."""

from __future__ import annotations

import email
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from ansible_collections.argus.verl.plugins.module_utils.argus.staging import source_tree
from ansible_collections.argus.verl.plugins.module_utils.argus.staging.git import COMMIT, Git, without_password
from ansible_collections.argus.verl.plugins.module_utils.argus.staging.options import StagingError
from ansible_collections.argus.verl.plugins.module_utils.argus.staging.source_tree import (
    MAX_SOURCE_BYTES,
    PACKAGES,
    CodeSource,
    Content,
    Tree,
    directory_requirements,
    is_ignored,
    is_plain_path,
    package_files,
)

RELEASE = re.compile(r"verl==([0-9][0-9A-Za-z]*(?:\.[0-9A-Za-z]+)*)")
# The notation of pip: git+https://host/path@ref, git+ssh://git@host/path@ref, git+file:///path@ref.
# An @ before the path belongs to the host. A ref or a host must not begin with a dash: git or ssh would take it for an
# option.
REPOSITORY = re.compile(
    r"git\+(?P<url>(?:https?|ssh|file)://(?!-)[^/\0-\x20]*/[^\0-\x20]+)@(?P<ref>[^@:\0-\x20-][^@:\0-\x20]*)"
)


@dataclass(frozen=True)
class Sources:
    """Where the controller looks for sources."""

    # Where relative paths begin.
    base: Path
    # The paths of the shared root on machines and in nodes. Only nodes open files there.
    shared_roots: Sequence[str]
    # An empty directory for fetched files.
    scratch: Path
    git: Git

    def part(self, text: str, is_overlay: bool) -> tuple[dict[str, Any], CodeSource | None]:
        """The description of a source for `argus stage`, and the source itself if the controller has to send it."""
        if text.startswith("git+file:"):
            self.check_repository(text)
        elif is_path(text) and (path := self.path_on_shared_root(text)):
            return {"place": "shared_root", "label": text, "path": path}, None
        source = self.source_of(text, is_overlay)
        if source is None:
            return {"place": "snapshot", "label": text}, None
        described = {name: getattr(source, name) for name in ("label", "identity", "code_id", "size")}
        return {"place": "controller", **described}, source

    def source_of(self, text: str, is_overlay: bool) -> CodeSource | None:
        """A source that the controller has to send; None for the name of a snapshot."""
        if is_overlay:
            path = self.real_directory(text)
            return source_tree.overlay_source(path, str(path))
        if match := RELEASE.fullmatch(re.sub(r"\s", "", text)):
            # A release never changes: its name is enough to compare, and nothing is fetched yet.
            label = f"verl=={match[1]}"
            return CodeSource(label, label, partial(fetch_release, label, self.scratch), f"verl-{match[1]}")
        if text.startswith("git+"):
            return repository_source(text, self.git, self.scratch)
        if not is_path(text):
            return None
        path = self.real_directory(text)
        return source_tree.verl_source(path, str(path))

    def absolute_path(self, text: str) -> Path:
        return Path(os.path.normpath(self.base / Path(text).expanduser()))

    def path_on_shared_root(self, text: str) -> str:
        """The path of a directory relative to the shared root; "" if it is elsewhere."""
        path = self.absolute_path(text)
        for root in self.shared_roots:
            for top in (Path(root), Path(root).resolve()):
                if path.is_relative_to(top):
                    return str(path.relative_to(top))
        return ""

    def real_directory(self, text: str) -> Path:
        """The path of a directory without links. Raises StagingError if a link leads to the shared root."""
        real = self.absolute_path(text).resolve()
        if self.path_on_shared_root(str(real)):
            raise StagingError(text, "leads to the shared root through a link.", "Give its path on the shared root.")
        return real

    def check_repository(self, text: str) -> None:
        """Raise StagingError for a repository on the shared root."""
        if self.path_on_shared_root(str(Path(urlsplit(text).path.rpartition("@")[0]).resolve())):
            problem = "is on the shared root, where only nodes open files."
            raise StagingError(f'source "{text}"', problem, "Give the path of a checkout there, or another repository.")


def is_path(text: str) -> bool:
    return text.startswith(("/", "~", "."))


def fetch_release(label: str, scratch: Path) -> Content:
    """Download a release from a package index, and return the files of its packages."""
    with zipfile.ZipFile(fetch_wheel(label, scratch)) as wheel:
        members = [member for member in wheel.infolist() if is_source_file(label, member)]
        if sum(member.file_size for member in members) > MAX_SOURCE_BYTES:
            problem = f"has files of more than {MAX_SOURCE_BYTES >> 30} GiB in its wheel."
            raise StagingError(label, problem, "Check where pip gets it from.")
        (metadata,) = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
        requirements = email.message_from_bytes(wheel.read(metadata)).get_all("Requires-Dist", [])
        wheel.extractall(scratch, members)
    return Tree.read(scratch, [member.filename for member in members]).content({"requirements": requirements})


def is_source_file(label: str, member: zipfile.ZipInfo) -> bool:
    """Whether a file of the wheel belongs to a snapshot. Raises StagingError for a path that cannot be shown."""
    name = member.filename
    is_source = name.partition("/")[0] in PACKAGES and not member.is_dir() and not is_ignored(name)
    if is_source and not is_plain_path(name):
        raise StagingError(label, f"has a file {name!r} in its wheel.", "Check where pip gets it from.")
    return is_source


def fetch_wheel(label: str, scratch: Path) -> Path:
    """Download a wheel by pip, and return its path."""
    # -P: Python would look for pip in the working directory first, where others may write.
    pip = [sys.executable, "-P", "-m", "pip", "--disable-pip-version-check", "download", "--quiet", "--no-deps"]
    # Only wheels: reading the metadata of a source distribution runs its code. Training uses the image's Python, so
    # that of the controller may be newer or older than the one that verl requires.
    pip += ["--only-binary=:all:", "--ignore-requires-python", "--dest", str(scratch), label]
    result = subprocess.run(pip, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    wheels = list(scratch.glob("*.whl"))
    if result.returncode or not wheels:
        lines = [line for line in result.stderr.splitlines() if not line.startswith("WARNING:")]
        raise StagingError(
            label,
            "\n".join(["pip could not fetch its wheel:", *lines, ""]),
            f"Configure a pip and a package index for {sys.executable} on the controller (pip.conf, PIP_INDEX_URL or "
            "PIP_FIND_LINKS), or set source to a directory with the source tree.",
        )
    return wheels[0]


def repository_source(text: str, git: Git, scratch: Path) -> CodeSource:
    """The source for one commit of a repository, which is fetched later."""
    match = REPOSITORY.fullmatch(text)
    if not match:
        remedy = "Give git+https://<host>/<path>@<branch, tag or commit>, or git+ssh://git@<host>/<path>@<…>."
        raise StagingError(f'source "{without_password(text)}"', "is not a repository with a ref.", remedy)
    url, ref = match["url"], match["ref"]
    address = urlsplit(url)
    # The @ is searched in the whole URL, as a password with a slash looks like a path.
    if address.password or (address.scheme.startswith("http") and "@" in url):
        place = f'source "{without_password(text)}"'
        raise StagingError(
            place, "has a password or a token in it.", "Remove it, and let git's credential helper have it."
        )
    commit = ref if COMMIT.fullmatch(ref) else git.commit_of(url, ref)
    code_id = f"{PurePosixPath(address.path).stem}-{commit[:12]}"
    return CodeSource(text, f"commit {commit}", partial(fetch_commit, text, url, ref, commit, git, scratch), code_id)


def fetch_commit(label: str, url: str, ref: str, commit: str, git: Git, scratch: Path) -> Content:
    fetched = git.check_out(url, ref, scratch)
    if fetched != commit:
        problem = f"moved from {commit} to {fetched} while it was fetched."
        raise StagingError(label, problem, "Stage it again.")
    facts = {"commit": commit, "requirements": directory_requirements(scratch)}
    if missing := git.fetch_submodules(scratch, PACKAGES):
        facts["report"] = missing
    return Tree.read(scratch, package_files(scratch)).content(facts)
