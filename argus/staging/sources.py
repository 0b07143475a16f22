# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the source tree of a snapshot comes from: a release, a git repository, a directory or another snapshot."""

from __future__ import annotations

import ast
import email
import os
import re
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Protocol
from urllib.parse import urlsplit

from ..common.text import size_text
from . import checkout
from .addresses import is_loopback
from .errors import StagingError, changed_meanwhile, listed
from .files import is_ignored, is_plain_path
from .git import Git
from .lock import Progress
from .manifest import MANIFEST, Manifest, read_manifest
from .options import NAME_WITH_CAPITALS
from .tree import (
    PACKAGES,
    Content,
    FileSnapshot,
    content_sha256,
    hold,
    open_within,
    package_files,
    read_files,
    read_packages,
    source_directory,
)

MARKER = "mvp_marker.py"
PATCH = "uncommitted.patch"
# The facts of a source, which also hold for a snapshot that adds overlays to it.
SOURCE_FACTS = ("commit", "uncommitted", "untracked", "requirements")
# Its files are unpacked in memory.
LARGEST_WHEEL = 1 << 30
RELEASE = re.compile(r"verl==([0-9][0-9A-Za-z]*(?:\.[0-9A-Za-z]+)*)")
# The notation of pip: git+https://host/path@ref, git+ssh://git@host/path@ref, git+file:///path@ref.
# An @ before the path belongs to the host; git would read a ref that begins with a dash as an option.
# ssh would read a host that begins with a dash in the same way.
REPOSITORY = re.compile(
    r"git\+(?P<url>(?:https?|ssh|file)://(?!-)[^/\0-\x20]*/[^\0-\x20]+)@(?P<ref>[^@:\0-\x20-][^@:\0-\x20]*)"
)
# Of setup.py, pyproject.toml and the file with the version.
SMALL_BYTES = 4 << 20
COMMIT = re.compile(r"[0-9a-f]{40}")


class Source(Protocol):
    """Where a snapshot comes from."""

    @property
    def label(self) -> str:
        """The source in the manifest."""

    @property
    def identity(self) -> str:
        """A text that is equal for sources with the same files."""

    @property
    def code_id(self) -> str:
        """The default id of the snapshot."""

    def read(self, progress: Progress) -> Content:
        """Fetches the source, and returns its packages and facts for the manifest."""


@dataclass(frozen=True)
class PyPISource:
    """A release from a package index."""

    version: str

    @property
    def label(self) -> str:
        return f"verl=={self.version}"

    @property
    def identity(self) -> str:
        # A release never changes: its name is enough, so nothing is fetched for a comparison.
        return self.label

    @property
    def code_id(self) -> str:
        return f"verl-{self.version}"

    def read(self, progress: Progress) -> Content:
        progress.begin(f"fetching {self.label}")
        with tempfile.TemporaryDirectory() as download, zipfile.ZipFile(self.wheel(Path(download))) as wheel:
            members = [each for each in wheel.infolist() if self._is_wanted(each)]
            size = sum(each.file_size for each in members)
            if size > LARGEST_WHEEL:
                what = f"has files of {size_text(size)} in its wheel; at most {size_text(LARGEST_WHEEL)} are unpacked."
                raise StagingError(self.label, what, "Check where pip gets it from.")
            files = {each.filename: FileSnapshot.of_content(wheel.read(each)) for each in members}
            metadata = next(name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
            requirements = email.message_from_bytes(wheel.read(metadata)).get_all("Requires-Dist", [])
        return Content(files, {"requirements": requirements})

    def _is_wanted(self, member: zipfile.ZipInfo) -> bool:
        name = member.filename
        wanted = name.partition("/")[0] in PACKAGES and not member.is_dir() and not is_ignored(name)
        if wanted and not is_plain_path(name):
            raise StagingError(self.label, f"has a file {name!r} in its wheel.", "Check where pip gets it from.")
        return wanted

    def wheel(self, download: Path) -> Path:
        # -P: Python would look for pip in the working directory first, where others may write.
        pip = [sys.executable, "-P", "-m", "pip", "--disable-pip-version-check", "download", "--quiet", "--no-deps"]
        # Only wheels: reading the metadata of a source distribution runs its code. Training uses the image's Python,
        # so this machine's may be newer or older than the one that verl requires.
        pip += ["--only-binary=:all:", "--ignore-requires-python", "--dest", str(download), self.label]
        done = subprocess.run(pip, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
        wheels = list(download.glob("*.whl"))
        if done.returncode or not wheels:
            lines = [line for line in done.stderr.splitlines() if not line.startswith("WARNING:")]
            raise StagingError(
                self.label,
                "\n".join(["pip could not fetch its wheel:", *lines, ""]),
                f"Configure a pip and a package index for {sys.executable} on this machine (pip.conf, PIP_INDEX_URL or "
                "PIP_FIND_LINKS), or set source to a directory with the source tree.",
            )
        return wheels[0]


@dataclass(frozen=True)
class DirectorySource:
    """A source tree on this machine: a checkout, perhaps with uncommitted changes."""

    path: Path
    verl_version: str
    files: Mapping[str, FileSnapshot]

    @classmethod
    def of(cls, path: Path) -> DirectorySource:
        """The tree at a path, which source_directory returned."""
        return cls(path, read_verl_version(path), read_packages(path))

    @property
    def content_sha256(self) -> str:
        return content_sha256(self.files)

    @property
    def label(self) -> str:
        return str(self.path)

    @property
    def identity(self) -> str:
        return f"content {self.content_sha256}"

    @property
    def code_id(self) -> str:
        # A local version (0.10.0+mine) has characters that are not allowed in a code id.
        return f"verl-{re.sub(r'[^A-Za-z0-9._-]', '-', self.verl_version)}-{self.content_sha256[:8]}"

    def read(self, progress: Progress) -> Content:
        files = hold(self.path, self.files)
        facts: dict[str, object] = {"requirements": directory_requirements(self.path)}
        state = checkout.state_of(self.path, [name for name in PACKAGES if (self.path / name).is_dir()])
        if state:
            facts |= {"commit": state.commit, "uncommitted": bool(state.patch), "untracked": state.untracked}
        if set(files) != set(package_files(self.path)):
            raise changed_meanwhile(self.path)
        return Content(files, facts, {PATCH: state.patch} if state and state.patch else {})


@dataclass(frozen=True)
class GitSource:
    """One commit of a repository."""

    url: str
    ref: str
    commit: str
    git: Git

    @property
    def label(self) -> str:
        return f"git+{self.url}@{self.ref}"

    @property
    def identity(self) -> str:
        return f"commit {self.commit}"

    @property
    def code_id(self) -> str:
        return f"{PurePosixPath(urlsplit(self.url).path).stem}-{self.commit[:12]}"

    def read(self, progress: Progress) -> Content:
        progress.begin(f"fetching {self.label}")
        with tempfile.TemporaryDirectory() as temporary:
            directory = Path(temporary).resolve()
            self.git.fetch(self.url, self.commit if self.ref == self.commit else self.ref, directory)
            fetched = self.git.run("rev-parse", "HEAD", directory=directory).strip()
            if fetched != self.commit:
                what = f"moved from {self.commit} to {fetched} while it was fetched."
                raise StagingError(self.label, what, "Stage it again.")
            files = hold(directory, read_packages(directory))
            return Content(files, {"commit": self.commit, "requirements": directory_requirements(directory)})


@dataclass(frozen=True)
class SnapshotSource:
    """Another snapshot, to which overlays are added."""

    path: Path
    manifest: Manifest

    @property
    def label(self) -> str:
        return self.path.name

    @property
    def identity(self) -> str:
        return f"content {self.manifest.facts['content_sha256']}"

    @property
    def code_id(self) -> str:
        return self.path.name

    def read(self, progress: Progress) -> Content:
        expected = {name: entry for name, entry in self.manifest.files.items() if name not in (MARKER, MANIFEST)}
        try:
            files = read_files(self.path, [*expected])
        except OSError as error:
            raise self._broken([str(error)]) from error
        # By their content: a job may have changed files, and the manifest.
        wrong = [name for name, file in files.items() if file.sha256 != expected[name].sha256]
        if wrong:
            raise self._broken(wrong)
        return Content(hold(self.path, files), self.manifest.select(SOURCE_FACTS))

    def _broken(self, wrong: list[str]) -> StagingError:
        what = f"no longer fits its manifest: {listed(wrong)}."
        return StagingError(self.path, what, "Restore it as it was staged first.")


@dataclass(frozen=True)
class ReadSource:
    """A source that was read already, by a process that may read it."""

    source: Source
    content: Content

    @property
    def label(self) -> str:
        return self.source.label

    @property
    def identity(self) -> str:
        return self.source.identity

    @property
    def code_id(self) -> str:
        return self.source.code_id

    def read(self, progress: Progress) -> Content:
        return self.content


def is_elsewhere(text: str, shared_root: Path) -> bool:
    """Whether a source, or the directory of an overlay, is not on the shared root, where jobs can write."""
    if not text.startswith(("/", "~", ".")):
        return text.startswith("git+") or bool(RELEASE.fullmatch(re.sub(r"\s", "", text)))
    path = Path(text).expanduser()
    ways = (Path(os.path.normpath(path.absolute())), path.resolve())
    return not any(way.is_relative_to(root) for way in ways for root in (shared_root, shared_root.resolve()))


def source_of(text: str, snapshots: Path, git: Git | None = None) -> Source:
    """The source for the module's option: a release, a repository, a directory, or a snapshot."""
    release = RELEASE.fullmatch(re.sub(r"\s", "", text))
    if release:
        return PyPISource(release[1])
    if text.startswith("git+"):
        return repository(text, git or Git())
    path = Path(text).expanduser()
    if text.startswith(("/", "~", ".")):
        if (path / "verl" / "__init__.py").is_file():
            return DirectorySource.of(source_directory(path))
        what = "has no verl/ package in it." if path.is_dir() else "does not exist on this machine."
    else:
        # A snapshot cannot have a name that is not allowed.
        manifest = read_manifest(snapshots / text) if NAME_WITH_CAPITALS.fullmatch(text) else None
        if manifest is not None:
            # What makes it the same source as another one: a job can have removed it.
            if manifest.kind != "snapshot" or not isinstance(manifest.facts.get("content_sha256"), str):
                todo = "Give the code_id of a snapshot."
                raise StagingError(snapshots / text, "has no manifest of a snapshot.", todo)
            return SnapshotSource((snapshots / text).resolve(), manifest)
        what = f"is neither a release, a repository, a directory nor a snapshot in {snapshots}."
    raise StagingError(
        f'source "{without_password(text)}"',
        what,
        "Give verl==<version>, git+https://<host>/<path>@<ref>, the absolute path of a directory that contains verl/, "
        "or the code_id of a snapshot.",
    )


def repository(text: str, git: Git) -> GitSource:
    match = REPOSITORY.fullmatch(text)
    if not match:
        todo = "Give git+https://<host>/<path>@<branch, tag or commit>, or git+ssh://git@<host>/<path>@<…>."
        raise StagingError(f'source "{without_password(text)}"', "is not a repository with a ref.", todo)
    url, ref = match["url"], match["ref"]
    address = urlsplit(url)
    # A password with a slash in it looks like a path.
    if address.password or (address.scheme.startswith("http") and "@" in url):
        where = f'source "{without_password(text)}"'
        raise StagingError(where, "has a password or a token in it.", "Remove it, and set staging_git_token.")
    if git.token and address.scheme == "http" and not is_loopback(address.hostname):
        raise StagingError(f'source "{text}"', "would get the token unencrypted.", "Use https, or unset the token.")
    return GitSource(url, ref, ref if COMMIT.fullmatch(ref) else git.commit_of(url, ref), git)


def without_password(text: str) -> str:
    """An address for messages, without user and password."""
    return re.sub(r"://.*@", "://…@", text)


def read_verl_version(directory: Path) -> str:
    file = directory / "verl" / "version" / "version"
    text = _read_text(file, directory)
    if text is None:
        raise StagingError(file, "is missing.", "Give a source tree of verl: every release has this file.")
    return text.strip()


def _read_text(file: Path, directory: Path) -> str | None:
    """The text of a small file in a source tree; None if it does not exist."""
    try:
        with open_within(str(file), directory) as opened:
            content = opened.read(SMALL_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise StagingError(file, "is not UTF-8.", "Correct it.") from error
    if len(content) > SMALL_BYTES:
        raise StagingError(file, f"has more than {size_text(SMALL_BYTES)}.", "Correct it.")
    return text


def directory_requirements(directory: Path) -> list[str]:
    """The requirements of a source tree, as far as they can be read without running its code."""
    try:
        project = tomllib.loads(_read_text(directory / "pyproject.toml", directory) or "").get("project", {})
        dependencies = project.get("dependencies")
    except (ValueError, AttributeError, RecursionError):
        dependencies = None
    if isinstance(dependencies, list) and dependencies:
        return [str(each) for each in dependencies]
    return _setup_requirements(_read_text(directory / "setup.py", directory) or "")


def _setup_requirements(text: str) -> list[str]:
    """``install_requires`` of a setup.py, as a variable (as in verl's) or as an argument."""
    try:
        nodes = list(ast.walk(ast.parse(text)))
    # Also for a text that was made to exhaust the parser.
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    values = [
        node.value
        for node in nodes
        if isinstance(node, ast.Assign)
        and any(isinstance(to, ast.Name) and to.id == "install_requires" for to in node.targets)
    ]
    values += [node.value for node in nodes if isinstance(node, ast.keyword) and node.arg == "install_requires"]
    for value in values:
        try:
            return [str(each) for each in ast.literal_eval(value)]
        except (ValueError, TypeError, RecursionError, MemoryError):
            # The code computes it.
            continue
    return []
