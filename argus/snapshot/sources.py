# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the source tree of a snapshot comes from: a release, a git repository or a directory."""

from __future__ import annotations

import ast
import email
import io
import os
import re
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

from .errors import SourceError
from .git import Git
from .tree import (
    CONTENT,
    MOST_BYTES,
    PACKAGES,
    Content,
    Tree,
    is_ignored,
    is_plain_path,
    open_within,
    package_files,
    source_directory,
    tree_files,
)

PATCH = "uncommitted.patch"
RELEASE = re.compile(r"verl==([0-9][0-9A-Za-z]*(?:\.[0-9A-Za-z]+)*)")
# The notation of pip: git+https://host/path@ref, git+ssh://git@host/path@ref, git+file:///path@ref.
# An @ before the path belongs to the host; git would read a ref that begins with a dash as an option.
# ssh would read a host that begins with a dash in the same way.
REPOSITORY = re.compile(
    r"git\+(?P<url>(?:https?|ssh|file)://(?!-)[^/\0-\x20]*/[^\0-\x20]+)@(?P<ref>[^@:\0-\x20-][^@:\0-\x20]*)"
)
LOOPBACK = ("localhost", "127.0.0.1", "::1")
# Of setup.py, pyproject.toml and the file with the version.
SMALL_BYTES = 4 << 20
COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True)
class Source:
    """The source of a snapshot, or an overlay.

    label: the source in the manifest. identity: a text that is equal for sources with the same files. code_id: the
    default id of the snapshot. size: in bytes, as far as it is known in advance. content: fetches it.
    """

    label: str
    identity: str
    content: Callable[[], AbstractContextManager[Content]] = field(repr=False)
    code_id: str = ""
    size: int = 0


def source_of(text: str, shared_root: Path | None, git: Git) -> Source | None:
    """A release, a repository or a directory of this machine; None for a name, which can be that of a snapshot."""
    match = RELEASE.fullmatch(re.sub(r"\s", "", text))
    if match:
        # A release never changes: its name is enough, so nothing is fetched for a comparison.
        label = f"verl=={match[1]}"
        return Source(label, label, partial(fetch_release, label), f"verl-{match[1]}")
    if text.startswith("git+"):
        return repository(text, git)
    if not is_path(text):
        return None
    path = source_directory(Path(text), shared_root)
    return directory(path, str(path), git)


def overlay_of(text: str, shared_root: Path | None) -> Source:
    """A directory of this machine that is put over a snapshot."""
    path = source_directory(Path(text), shared_root)
    return overlay(path, str(path))


def is_path(text: str) -> bool:
    return text.startswith(("/", "~", "."))


def unknown_source(text: str, what: str) -> SourceError:
    return SourceError(
        f'source "{without_password(text)}"',
        what,
        "Give verl==<version>, git+https://<host>/<path>@<ref>, the absolute path of a directory on the head's machine "
        "that contains verl/, or the code_id of a snapshot.",
    )


def path_below(text: str, root: Path | None) -> str:
    """The path of a directory relative to the shared root; nothing if it is elsewhere."""
    is_file = text.startswith("git+file:")
    if not root or not (is_file or is_path(text)):
        return ""
    path = Path(urlsplit(text).path.rpartition("@")[0] if is_file else text).expanduser().absolute()
    normal = Path(os.path.normpath(path))
    if not normal.is_relative_to(root):
        return ""
    if is_file:
        what = "is on the shared root, where only nodes open files."
        raise SourceError(f'source "{text}"', what, "Give the path of a checkout there, or another repository.")
    return str(normal.relative_to(root))


def without_password(text: str) -> str:
    """An address for messages, without user and password."""
    return re.sub(r"://.*@", "://…@", text)


@contextmanager
def fetch_release(label: str) -> Iterator[Content]:
    """A release from a package index."""
    with tempfile.TemporaryDirectory() as download, zipfile.ZipFile(fetch_wheel(label, Path(download))) as wheel:
        members = [member for member in wheel.infolist() if is_source_file(label, member)]
        if sum(member.file_size for member in members) > MOST_BYTES:
            what = f"has files of more than {MOST_BYTES >> 30} GiB in its wheel."
            raise SourceError(label, what, "Check where pip gets it from.")
        (metadata,) = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
        requirements = email.message_from_bytes(wheel.read(metadata)).get_all("Requires-Dist", [])
        files = ((member.filename, partial(wheel.open, member)) for member in members)
        yield Content(files, {"requirements": requirements})


def is_source_file(label: str, member: zipfile.ZipInfo) -> bool:
    name = member.filename
    wanted = name.partition("/")[0] in PACKAGES and not member.is_dir() and not is_ignored(name)
    if wanted and not is_plain_path(name):
        raise SourceError(label, f"has a file {name!r} in its wheel.", "Check where pip gets it from.")
    return wanted


def fetch_wheel(label: str, download: Path) -> Path:
    # -P: Python would look for pip in the working directory first, where others may write.
    pip = [sys.executable, "-P", "-m", "pip", "--disable-pip-version-check", "download", "--quiet", "--no-deps"]
    # Only wheels: reading the metadata of a source distribution runs its code. Training uses the image's Python, so
    # that of this machine may be newer or older than the one that verl requires.
    pip += ["--only-binary=:all:", "--ignore-requires-python", "--dest", str(download), label]
    done = subprocess.run(pip, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    wheels = list(download.glob("*.whl"))
    if done.returncode or not wheels:
        lines = [line for line in done.stderr.splitlines() if not line.startswith("WARNING:")]
        raise SourceError(
            label,
            "\n".join(["pip could not fetch its wheel:", *lines, ""]),
            f"Configure a pip and a package index for {sys.executable} on this machine (pip.conf, PIP_INDEX_URL or "
            "PIP_FIND_LINKS), or set source to a directory with the source tree.",
        )
    return wheels[0]


def repository(text: str, git: Git) -> Source:
    """One commit of a repository."""
    match = REPOSITORY.fullmatch(text)
    if not match:
        todo = "Give git+https://<host>/<path>@<branch, tag or commit>, or git+ssh://git@<host>/<path>@<…>."
        raise SourceError(f'source "{without_password(text)}"', "is not a repository with a ref.", todo)
    url, ref = match["url"], match["ref"]
    address = urlsplit(url)
    # A password with a slash in it looks like a path.
    if address.password or (address.scheme.startswith("http") and "@" in url):
        where = f'source "{without_password(text)}"'
        raise SourceError(where, "has a password or a token in it.", "Remove it, and set staging_git_token.")
    if git.token and address.scheme == "http" and address.hostname not in LOOPBACK:
        raise SourceError(f'source "{text}"', "would get the token unencrypted.", "Use https, or unset the token.")
    commit = ref if COMMIT.fullmatch(ref) else git.commit_of(url, ref)
    code_id = f"{PurePosixPath(address.path).stem}-{commit[:12]}"
    return Source(text, f"commit {commit}", partial(fetch_commit, text, url, ref, commit, git), code_id)


@contextmanager
def fetch_commit(label: str, url: str, ref: str, commit: str, git: Git) -> Iterator[Content]:
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(temporary).resolve()
        fetched = git.fetch(url, ref, path)
        if fetched != commit:
            what = f"moved from {commit} to {fetched} while it was fetched."
            raise SourceError(label, what, "Stage it again.")
        files = Tree.read(path, package_files(path)).files()
        yield Content(files, {"commit": commit, "requirements": directory_requirements(path)})


def directory(path: Path, label: str, git: Git) -> Source:
    """A source tree: a checkout, perhaps with uncommitted changes. path: the real one."""
    if not (path / "verl" / "__init__.py").is_file():
        raise unknown_source(label, "has no verl/ package in it." if path.is_dir() else "does not exist.")
    tree = Tree.read(path, package_files(path))
    # A local version (0.10.0+mine) has characters that are not allowed in a code id.
    version = re.sub(r"[^A-Za-z0-9._-]", "-", read_verl_version(path))
    code_id = f"verl-{version}-{tree.identity.removeprefix(CONTENT)[:8]}"
    return Source(label, tree.identity, partial(read_checkout, tree, git), code_id, tree.size)


@contextmanager
def read_checkout(tree: Tree, git: Git) -> Iterator[Content]:
    path = tree.path
    facts: dict[str, object] = {"requirements": directory_requirements(path)}
    files = list(tree.files())
    state = git.state_of(path, [name for name in PACKAGES if (path / name).is_dir()])
    if state:
        commit, patch, untracked = state
        facts |= {"commit": commit, "uncommitted": bool(patch), "untracked": untracked}
        files += [(PATCH, partial(io.BytesIO, patch))] if patch else []
    yield Content(files, facts)


def overlay(path: Path, label: str) -> Source:
    """path: the real one."""
    if not path.is_dir():
        raise SourceError(f'overlay "{label}"', "is not a directory.", "Correct its path on the head's machine.")
    tree = Tree.read(path, tree_files(path))
    return Source(label, tree.identity, lambda: nullcontext(Content(tree.files())), size=tree.size)


def read_verl_version(directory: Path) -> str:
    file = directory / "verl" / "version" / "version"
    text = _read_text(file, directory)
    if text is None:
        raise SourceError(file, "is missing.", "Give a source tree of verl: every release has this file.")
    return text.strip()


def _read_text(file: Path, directory: Path) -> str | None:
    """The text of a small file in a source tree; None if it does not exist."""
    try:
        with open_within(str(file), directory) as opened:
            content = opened.read(SMALL_BYTES + 1)
        text = content.decode()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except UnicodeDecodeError as error:
        raise SourceError(file, "is not UTF-8.", "Correct it.") from error
    if len(content) > SMALL_BYTES:
        raise SourceError(file, f"has more than {SMALL_BYTES >> 20} MiB.", "Correct it.")
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
