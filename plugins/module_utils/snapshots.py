# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Snapshots: immutable copies of a verl source tree under the shared root, from PyPI or from a directory."""

from __future__ import annotations

import ast
import email
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

from ansible_collections.argus.verl.plugins.module_utils.staging import (
    EXISTS,
    NAME_WITH_CAPITALS,
    STAGED,
    Staged,
    StagingError,
    check_name,
    check_shared_root,
    file_sha256,
    manifest_of,
    stage_directory,
)

KIND = "snapshot"
MARKER = "mvp_marker.py"
# Below the shared root. Each directory in it can be put on PYTHONPATH as it is.
SNAPSHOTS = "common/code/verl"
# Without verl/ it is no snapshot; the others are taken along from a source tree that has them.
PACKAGES = ("verl", "recipe", "examples")
REQUIREMENT = re.compile(r"verl==([0-9][0-9A-Za-z]*(?:\.[0-9A-Za-z]+)*)")


class Source(Protocol):
    """Where a snapshot comes from."""

    @property
    def label(self) -> str:
        """What the manifest names as the source."""

    @property
    def code_id(self) -> str:
        """The id of the snapshot when nobody chose one."""

    @property
    def verl_version(self) -> str: ...

    def is_in(self, manifest: Mapping[str, Any]) -> bool:
        """Whether a snapshot with this manifest holds what this source holds."""

    def fill(self, directory: Path) -> list[str]:
        """Put the packages into an empty directory, and return what they require."""


@dataclass(frozen=True)
class PyPISource:
    """One release, as a package index has it."""

    version: str

    @property
    def label(self) -> str:
        return f"verl=={self.version}"

    @property
    def code_id(self) -> str:
        return f"verl-{self.version}"

    @property
    def verl_version(self) -> str:
        return self.version

    def is_in(self, manifest: Mapping[str, Any]) -> bool:
        # A release never changes: its name is enough, and nothing has to be fetched for comparing.
        return manifest.get("source") == self.label

    def fill(self, directory: Path) -> list[str]:
        # Not below the shared root: what lies there would end up in the snapshot.
        with tempfile.TemporaryDirectory() as download, zipfile.ZipFile(self._wheel(Path(download))) as wheel:
            for name in wheel.namelist():
                if PurePosixPath(name).parts[0] in PACKAGES and not name.endswith("/") and not _is_litter(name):
                    wheel.extract(name, directory)
            metadata = next(name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
            return email.message_from_bytes(wheel.read(metadata)).get_all("Requires-Dist", [])

    def _wheel(self, download: Path) -> Path:
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet", "--no-deps"]
        # Only wheels: a source distribution runs its own code for being looked at. The Python that trains is
        # the image's, so that this machine's may be newer or older than what verl asks for.
        pip += ["--only-binary=:all:", "--ignore-requires-python", "--dest", str(download), self.label]
        done = subprocess.run(pip, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
        wheels = list(download.glob("*.whl"))
        if done.returncode or not wheels:
            said = [line for line in done.stderr.splitlines() if not line.startswith("WARNING:")]
            raise StagingError(
                self.label,
                "\n".join(["pip could not fetch its wheel:", *said, ""]),
                f"Give {sys.executable} on this machine a pip and a package index (pip.conf, PIP_INDEX_URL or "
                "PIP_FIND_LINKS), or set source to a directory that holds the source tree.",
            )
        return wheels[0]


@dataclass(frozen=True)
class DirectorySource:
    """A source tree on the machine: a checkout, perhaps with changes of its own."""

    path: Path
    verl_version: str
    content_sha256: str

    @classmethod
    def of(cls, path: Path) -> DirectorySource:
        return cls(path, read_verl_version(path), content_sha256(path))

    @property
    def label(self) -> str:
        return str(self.path)

    @property
    def code_id(self) -> str:
        # A local version (0.10.0+mine) has characters that a path should not have.
        return f"verl-{re.sub(r'[^A-Za-z0-9._-]', '-', self.verl_version)}-{self.content_sha256[:8]}"

    def is_in(self, manifest: Mapping[str, Any]) -> bool:
        return manifest.get("content_sha256") == self.content_sha256

    def fill(self, directory: Path) -> list[str]:
        for name, file in source_files(self.path).items():
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, directory / name)
        if content_sha256(directory) != self.content_sha256:
            raise StagingError(self.path, "changed while it was copied.", "Stage it again when nobody writes to it.")
        return directory_requirements(self.path)


def source_of(text: str) -> PyPISource | DirectorySource:
    """The source that a user names: an exact requirement, or a directory."""
    pinned = REQUIREMENT.fullmatch(re.sub(r"\s", "", text))
    if pinned:
        return PyPISource(pinned[1])
    path = Path(text).expanduser().resolve()
    if (path / "verl" / "__init__.py").is_file():
        return DirectorySource.of(path)
    what = "has no verl/ package in it." if path.is_dir() else "is neither a pinned requirement nor a directory here."
    raise StagingError(
        f'source "{text}"', what, "Give verl==<version>, or the directory of a source tree, in which verl/ lies."
    )


def snapshot(shared_root: Path, source: Source, code_id: str | None, *, check: bool = False) -> Staged:
    """Make the snapshot once; in check mode only say what would become of it."""
    code_id = check_name("code_id", code_id or source.code_id, NAME_WITH_CAPITALS)
    target = check_shared_root(shared_root) / SNAPSHOTS / code_id

    def build(directory: Path) -> dict[str, Any]:
        requirements = source.fill(directory)
        (directory / MARKER).write_text(f'MARKER = "{code_id}"\n', encoding="utf-8")
        return {
            "kind": KIND,
            "code_id": code_id,
            "source": source.label,
            "content_sha256": content_sha256(directory),
            "verl_version": read_verl_version(directory),
            "requirements": requirements,
        }

    if check:
        status = STAGED if manifest_of(target) is None else EXISTS
    else:
        status = stage_directory(target, build, read_only=True)
    # Not before staging: whoever was faster may have staged something else.
    if status == EXISTS:
        _check_same(target, source)
    return Staged(KIND, code_id, str(target), status)


def _check_same(target: Path, source: Source) -> None:
    manifest = manifest_of(target)
    if manifest is not None and not source.is_in(manifest):
        raise StagingError(
            target,
            f"holds {manifest.get('source')} (verl {manifest.get('verl_version')}), "
            f"which is not what {source.label} (verl {source.verl_version}) holds now.",
            "Snapshots never change: choose another code_id, or leave it out.",
        )


def read_verl_version(directory: Path) -> str:
    file = directory / "verl" / "version" / "version"
    try:
        return file.read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        raise StagingError(file, "is missing.", "Is this a source tree of verl? Every release has this file.") from None


def source_files(directory: Path) -> dict[str, Path]:
    """The files of the packages that a snapshot takes, by their relative path, in order."""
    found: dict[str, Path] = {}
    for package in PACKAGES:
        for parent, directories, names in os.walk(directory / package):
            directories[:] = [name for name in directories if not _is_litter(name)]
            linked = [name for name in directories if Path(parent, name).is_symlink()]
            for path in (Path(parent, name) for name in (*linked, *names) if not _is_litter(name)):
                # A link to a file is followed: a snapshot must not change with what lies elsewhere.
                if not path.is_file():
                    raise StagingError(
                        path,
                        "is a link to a directory, a broken link or a special file, and would be missing.",
                        "Put there what it points at, or remove it.",
                    )
                found[path.relative_to(directory).as_posix()] = path
    return dict(sorted(found.items()))


def content_sha256(directory: Path) -> str:
    """One hash over names and content of the packages, equal for equal trees wherever they lie."""
    lines = (f"{file_sha256(path)}  {name}\n" for name, path in source_files(directory).items())
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def directory_requirements(directory: Path) -> list[str]:
    """What a source tree says that it requires, where that can be read without running its code."""
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
    """``install_requires`` of a setup.py, as a variable (verl's way) or as an argument."""
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
            # Computed by the code around it.
            continue
    return []


def _is_litter(name: str) -> bool:
    """What tools leave in a source tree, and what differs from one import to the next."""
    return any(
        part in (".git", "__pycache__") or part.endswith((".pyc", ".egg-info")) for part in PurePosixPath(name).parts
    )
