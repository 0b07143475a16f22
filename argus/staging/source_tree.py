# SPDX-License-Identifier: Apache-2.0
"""Reads directories with the source of verl, or with overlays for it, on the controller and on the shared root.

Such a directory may belong to a user who must not get what this process can read. So no link may lead out of it.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import io
import os
import re
import stat
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from io import BufferedReader
from itertools import filterfalse
from pathlib import Path
from typing import Any

from .git import Git, without_password
from .options import StagingError

# Opens a file for reading.
Opener = Callable[[], BufferedReader | io.BytesIO]
# verl is required; the others are included if the source tree has them.
PACKAGES = ("verl", "recipe", "examples")
# A snapshot is for code. A sparse file has any size.
MAX_SOURCE_BYTES = 4 << 30
# The beginning of an identity that is a SHA-256 over all files, of a directory or a snapshot.
CONTENT_PREFIX = "content "
# Control characters, surrogates of names that are not UTF-8, and characters that change the direction of text.
UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
MAX_PATH_CHARS = 4096
# The file with the changes of a checkout since its commit.
PATCH = "uncommitted.patch"
# The maximum size of setup.py, pyproject.toml and the file with the version.
MAX_SMALL_FILE_BYTES = 4 << 20


def is_plain_path(name: str) -> bool:
    """Whether a text is a relative path in its normal form, without characters that cannot be shown."""
    parts = name.split("/")
    return len(name) <= MAX_PATH_CHARS and not {"", ".", ".."} & {*parts} and not UNPRINTABLE.search(name)


def is_ignored(name: str) -> bool:
    """Whether tools create a file with this relative path in a source tree, such as the cache of an import."""
    return any(part in (".git", "__pycache__") or part.endswith((".pyc", ".egg-info")) for part in name.split("/"))


@dataclass(frozen=True)
class Content:
    """What is copied from a source."""

    files: Mapping[str, Opener]  # by relative path
    facts: Mapping[str, Any] = field(default_factory=dict)  # for the manifest


@dataclass(frozen=True)
class CodeSource:
    """The source of a snapshot, or an overlay."""

    label: str  # the source in the manifest
    identity: str  # equal for sources with the same files
    content: Callable[[], Content] = field(repr=False)  # reads the files
    code_id: str = ""  # the default id of the snapshot; empty for an overlay
    size: int = 0  # in bytes, as far as it is known in advance


@dataclass(frozen=True)
class Tree:
    """The files of a directory, as they were read once."""

    path: Path
    hashes: Mapping[str, str]  # SHA-256 by relative path
    size: int  # the sum, in bytes

    @classmethod
    def read(cls, path: Path, names: Iterable[str]) -> Tree:
        """Reads files below `path`, which has no links. Raises StagingError for a file outside, and above the limit."""
        hashes, size = {}, 0
        for name in names:
            with open_within(f"{path}/{name}", path) as file:
                size += os.fstat(file.fileno()).st_size
                if size > MAX_SOURCE_BYTES:
                    problem = f"has files of more than {MAX_SOURCE_BYTES >> 30} GiB, which is the limit of a snapshot."
                    raise StagingError(path, problem, "Move data and models out of it.")
                hashes[name] = hashlib.file_digest(file, "sha256").hexdigest()
        return cls(path, hashes, size)

    @property
    def identity(self) -> str:
        return content_identity(self.hashes)

    def content(self, facts: Mapping[str, Any] | None = None) -> Content:
        """The files of the tree, to be read again."""
        return Content(openers_of(self.path, self.hashes), facts or {})


def opener_sha256(opener: Opener) -> str:
    with opener() as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def content_identity(hashes: Mapping[str, str]) -> str:
    """A text for the names and the content of files, equal for equal trees at different paths."""
    lines = "".join(f"{hashes[name]}  {name}\n" for name in sorted(hashes))
    return f"{CONTENT_PREFIX}{hashlib.sha256(lines.encode()).hexdigest()}"


def package_files(directory: Path) -> list[str]:
    """The relative paths of all files of PACKAGES, in order."""
    return sorted(name for package in PACKAGES for name in tree_files(directory, package))


def tree_files(directory: Path, below: str = "", without: str = "") -> Iterator[str]:
    """The relative paths of all files below a directory, or only below its subdirectory `below`.

    Left out are ignored files, and directories with the name `without`. Raises StagingError for special files.
    """
    for parent, directories, names in os.walk(directory / below, onerror=_raise_unless_missing):
        directories[:] = sorted(name for name in directories if name != without and not is_ignored(name))
        for name in directories:
            if os.path.islink(f"{parent}/{name}"):
                raise special_file_error(f"{parent}/{name}")
        for name in sorted(name for name in names if not is_ignored(name)):
            path = Path(parent, name)
            # Links to files are followed, and copied as files: a snapshot must not change with a file outside of it.
            if not path.is_file():
                raise special_file_error(path)
            relative = path.relative_to(directory).as_posix()
            if not is_plain_path(relative):
                problem = f"the name {relative!r} has characters that cannot be shown."
                raise StagingError(directory, problem, "Rename the file, or remove it.")
            yield relative


def _raise_unless_missing(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        raise error


def open_within(path: str, root: Path) -> BufferedReader:
    """Opens a regular file below a directory. Raises StagingError for other files, and for links that lead out of it.

    O_PATH gets hold of the file without opening it, because opening a FIFO waits, and opening a device can do anything.
    Then the kernel says where the file really is.
    """
    place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        status, real = os.fstat(place), os.readlink(f"/proc/self/fd/{place}")
        if not real.startswith(f"{root}/"):
            problem = f"leads out of {root}, to {real}."
            raise StagingError(path, problem, "Replace it by a copy of its destination, or remove it.")
        if not stat.S_ISREG(status.st_mode):
            raise special_file_error(path)
        return open(f"/proc/self/fd/{place}", "rb")
    finally:
        os.close(place)


def openers_of(root: Path, names: Iterable[str]) -> dict[str, Opener]:
    return {name: partial(open_within, f"{root}/{name}", root) for name in names}


def special_file_error(path: object) -> StagingError:
    problem = "is a link to a directory, a broken link or a special file, and would be missing."
    return StagingError(path, problem, "Replace it by a copy of its destination, or remove it.")


def verl_source(path: Path, label: str) -> CodeSource:
    """The source tree of verl in a directory. Raises StagingError if it is none. path: without links."""
    if not (path / "verl" / "__init__.py").is_file():
        raise unknown_source_error(label, "has no verl/ package in it." if path.is_dir() else "does not exist.")
    tree = Tree.read(path, package_files(path))
    # A local version (0.10.0+mine) has characters that are not allowed in a code id.
    version = re.sub(r"[^A-Za-z0-9._-]", "-", read_verl_version(path))
    code_id = f"verl-{version}-{tree.identity.removeprefix(CONTENT_PREFIX)[:8]}"
    return CodeSource(label, tree.identity, partial(verl_content, tree), code_id, tree.size)


def verl_content(tree: Tree) -> Content:
    """The files of a source tree; for a checkout of git also the commit, and the uncommitted changes as a patch."""
    content = tree.content({"requirements": directory_requirements(tree.path)})
    if not (state := Git().checkout_state(tree.path, [name for name in PACKAGES if (tree.path / name).is_dir()])):
        return content
    commit, patch, untracked = state
    facts = {"commit": commit, "uncommitted": bool(patch), "untracked": [*filterfalse(is_ignored, untracked)]}
    files = {PATCH: partial(io.BytesIO, patch)} if patch else {}
    return Content({**content.files, **files}, {**content.facts, **facts})


def overlay_source(path: Path, label: str) -> CodeSource:
    """A directory as an overlay. Raises StagingError if it is none. path: without links."""
    if not path.is_dir():
        raise StagingError(f'overlay "{label}"', "is not a directory.", "Correct its path.")
    tree = Tree.read(path, tree_files(path))
    return CodeSource(label, tree.identity, tree.content, size=tree.size)


def unknown_source_error(text: str, problem: str) -> StagingError:
    return StagingError(
        f'source "{without_password(text)}"',
        problem,
        "Give verl==<version>, git+https://<host>/<path>@<ref>, a directory of the controller or of the shared root "
        "that contains verl/, or the code_id of a snapshot.",
    )


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
            content = opened.read(MAX_SMALL_FILE_BYTES + 1)
        text = content.decode()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except UnicodeDecodeError as error:
        raise StagingError(file, "is not UTF-8.", "Correct it.") from error
    if len(content) > MAX_SMALL_FILE_BYTES:
        raise StagingError(file, f"has more than {MAX_SMALL_FILE_BYTES >> 20} MiB.", "Correct it.")
    return text


def directory_requirements(directory: Path) -> list[str]:
    """The requirements of a source tree, as far as they can be read without running its code."""
    try:
        project = tomllib.loads(_read_text(directory / "pyproject.toml", directory) or "").get("project", {})
        dependencies = [str(requirement) for requirement in project.get("dependencies", [])]
        extras = project.get("optional-dependencies", {}).items()
        optional = [_extra_requirement(str(needed), extra) for extra, requirements in extras for needed in requirements]
    except (ValueError, AttributeError, TypeError, RecursionError):
        dependencies, optional = [], []
    return [*(dependencies or _setup_requirements(_read_text(directory / "setup.py", directory) or "")), *optional]


def _extra_requirement(requirement: str, extra: str) -> str:
    """A requirement of an extra, as the metadata of a wheel has it."""
    needed, _semicolon, marker = requirement.partition(";")
    # An address ends at a blank.
    return f"{needed.strip()} ; {f'({marker.strip()}) and ' if marker else ''}extra == '{extra}'"


def _setup_requirements(text: str) -> list[str]:
    """``install_requires`` of a setup.py, as a variable (as in verl's) or as an argument."""
    # Someone may have written the text to exhaust the parser. Requirements that are computed are left out.
    errors = (SyntaxError, ValueError, TypeError, RecursionError, MemoryError)
    with contextlib.suppress(*errors):
        for node in ast.walk(ast.parse(text)):
            if not isinstance(node, ast.Assign | ast.keyword):
                continue
            names = [node.arg] if isinstance(node, ast.keyword) else [getattr(to, "id", "") for to in node.targets]
            if "install_requires" in names:
                with contextlib.suppress(*errors):
                    return [str(requirement) for requirement in ast.literal_eval(node.value)]
    return []
