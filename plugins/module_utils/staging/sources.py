# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the source tree of a snapshot comes from: a release, a git repository, a directory or another snapshot."""

from __future__ import annotations

import ast
import email
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

from .errors import StagingError
from .files import is_ignored
from .git import Git
from .manifest import Facts, Manifest, problems, read_manifest
from .options import NAME_WITH_CAPITALS
from .tree import PACKAGES, FileSnapshot, Tree, changed_meanwhile, content_sha256, package_files, read_packages

MARKER = "mvp_marker.py"
PATCH = "uncommitted.patch"
# The facts of a source, which also hold for a snapshot that adds overlays to it.
SOURCE_FACTS = ("commit", "uncommitted", "untracked", "requirements")
RELEASE = re.compile(r"verl==([0-9][0-9A-Za-z]*(?:\.[0-9A-Za-z]+)*)")
# The notation of pip: git+https://host/path@ref, git+ssh://git@host/path@ref, git+file:///path@ref.
# An @ before the path belongs to the host; git would read a ref that begins with a dash as an option.
REPOSITORY = re.compile(r"git\+(?P<url>(?:https?|ssh|file)://[^/]*/.+)@(?P<ref>[^@:-][^@:]*)")
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

    def fill(self, tree: Tree) -> Facts:
        """Puts the packages into an empty tree, and returns facts of the source for the manifest."""


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

    def fill(self, tree: Tree) -> Facts:
        # Not in the tree itself, where the download would become part of the snapshot.
        with tempfile.TemporaryDirectory() as download, zipfile.ZipFile(self.wheel(Path(download))) as wheel:
            unpacked = Path(download) / "unpacked"
            for name in wheel.namelist():
                if PurePosixPath(name).parts[0] in PACKAGES and not name.endswith("/") and not is_ignored(name):
                    wheel.extract(name, unpacked)
            tree.add(unpacked, read_packages(unpacked))
            metadata = next(name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
            return {"requirements": email.message_from_bytes(wheel.read(metadata)).get_all("Requires-Dist", [])}

    def wheel(self, download: Path) -> Path:
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet", "--no-deps"]
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

    def fill(self, tree: Tree) -> Facts:
        tree.add(self.path, self.files)
        if set(self.files) != set(package_files(self.path)):
            raise changed_meanwhile(self.path)
        return {"requirements": directory_requirements(self.path), **checkout_state(self.path, tree)}


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

    def fill(self, tree: Tree) -> Facts:
        tree.progress.begin(f"fetching {self.label}")
        with tempfile.TemporaryDirectory() as checkout:
            for arguments in (
                ("init", "--quiet"),
                ("fetch", "--quiet", "--depth=1", self.url, self.commit if self.ref == self.commit else self.ref),
                ("checkout", "--quiet", "--force", "FETCH_HEAD"),
            ):
                self.git.run(*arguments, directory=checkout)
            fetched = self.git.run("rev-parse", "HEAD", directory=checkout).strip()
            if fetched != self.commit:
                what = f"moved from {self.commit} to {fetched} while it was fetched."
                raise StagingError(self.label, what, "Stage it again.")
            tree.add(Path(checkout), read_packages(Path(checkout), within=True))
            return {"commit": self.commit, "requirements": directory_requirements(Path(checkout))}


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

    def fill(self, tree: Tree) -> Facts:
        if problems(self.path, self.manifest):
            raise StagingError(self.path, "no longer fits its manifest.", "Restore it as it was staged first.")
        files = {
            name: FileSnapshot(entry.size, entry.mtime_ns or 0, entry.sha256)
            for name, entry in self.manifest.files.items()
            if name != MARKER
        }
        tree.add(self.path, files)
        return self.manifest.select(SOURCE_FACTS)


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
            return DirectorySource.of(path.resolve())
        what = "has no verl/ package in it." if path.is_dir() else "does not exist on this machine."
    else:
        # A snapshot cannot have a name that is not allowed.
        manifest = read_manifest(snapshots / text) if NAME_WITH_CAPITALS.fullmatch(text) else None
        if manifest is not None:
            return SnapshotSource(snapshots / text, manifest)
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
    if git.token and address.scheme == "http" and address.hostname not in ("localhost", "127.0.0.1", "::1"):
        raise StagingError(f'source "{text}"', "would get the token unencrypted.", "Use https, or unset the token.")
    return GitSource(url, ref, ref if COMMIT.fullmatch(ref) else git.commit_of(url, ref), git)


def without_password(text: str) -> str:
    """An address for messages, without user and password."""
    return re.sub(r"://.*@", "://…@", text)


def read_verl_version(directory: Path) -> str:
    file = directory / "verl" / "version" / "version"
    try:
        return file.read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        todo = "Give a source tree of verl: every release has this file."
        raise StagingError(file, "is missing.", todo) from None


def checkout_state(path: Path, tree: Tree) -> Facts:
    """The commit of a directory that is a git checkout; uncommitted changes are put into the tree as a patch."""
    git = Git()
    try:
        # git refuses another user's checkout, because its configuration can run programs; then nothing is recorded.
        commit = git.run("rev-parse", "HEAD", directory=path).strip()
        paths = [name for name in PACKAGES if (path / name).is_dir()]
        patch = git.run("diff", "--binary", "--no-ext-diff", "--no-color", "HEAD", "--", *paths, directory=path)
        listed = git.run("ls-files", "--others", "--exclude-standard", "-z", "--", *paths, directory=path)
    except StagingError:
        return {}
    if patch:
        tree.put(PATCH, patch.encode(errors="surrogateescape"))
    return {"commit": commit, "uncommitted": bool(patch), "untracked": [name for name in listed.split("\0") if name]}


def directory_requirements(directory: Path) -> list[str]:
    """The requirements of a source tree, as far as they can be read without running its code."""
    project = directory / "pyproject.toml"
    if project.is_file():
        try:
            dependencies = tomllib.loads(project.read_text(encoding="utf-8")).get("project", {}).get("dependencies")
        except ValueError:
            dependencies = None
        if dependencies:
            return [str(each) for each in dependencies]
    setup = directory / "setup.py"
    return _setup_requirements(setup.read_text(encoding="utf-8")) if setup.is_file() else []


def _setup_requirements(text: str) -> list[str]:
    """``install_requires`` of a setup.py, as a variable (as in verl's) or as an argument."""
    try:
        nodes = list(ast.walk(ast.parse(text)))
    except SyntaxError:
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
        except (ValueError, TypeError):
            # The code computes it.
            continue
    return []
