# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The commit of a git checkout and what differs from it, without the checkout's own configuration.

The configuration of a repository names programs that git runs: ``core.fsmonitor``, filters, ``textconv``, hooks.
A user who can write to a checkout, or who packed it into an archive, would run them as the user who stages it. So git
works in a private repository here that only borrows the objects and the index of the checkout.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..launcher.reading import UnreadableError, read_bytes, read_text
from .files import is_ignored

COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
# git forbids far more, but nothing of the rest matters for reading a file.
REF = re.compile(r"refs/[^\0-\x20\x7f~^:?*\[\\]+")
SHA256_DIGITS = 64
SMALL_BYTES, INDEX_BYTES = 1 << 20, 256 << 20
# For a FIFO in the place of a .gitattributes, and a pack that was made to take for ever.
GIT_SECONDS = 120.0
# With git-lfs, the repository has a pointer where the checkout has the file; only the filter could compare them.
NO_LFS = ":(exclude,attr:filter=lfs)"


@dataclass(frozen=True)
class CheckoutState:
    """commit: what is checked out. patch: what differs from it. untracked: the names of files that it does not know."""

    commit: str
    patch: bytes
    untracked: Sequence[str]


class NoCheckoutError(Exception):
    """A directory is not a checkout that can be read safely."""


def state_of(directory: Path, paths: Sequence[str]) -> CheckoutState | None:
    """The state of these paths in a checkout; None for a directory that is none, or belongs to another user."""
    try:
        repository = _Repository.of(directory)
        with tempfile.TemporaryDirectory() as private:
            return _state(repository, Path(private), directory, paths)
    except (NoCheckoutError, UnreadableError, OSError, subprocess.SubprocessError):
        return None


@dataclass(frozen=True)
class _Repository:
    """own: where HEAD and the index are. common: where refs and objects are."""

    own: Path
    common: Path

    @classmethod
    def of(cls, directory: Path) -> _Repository:
        link = directory / ".git"
        if stat.S_ISREG(link.lstat().st_mode):
            text = read_text(directory, ".git", SMALL_BYTES).strip()
            own = (directory / text.removeprefix("gitdir:").strip()).resolve()
            # A worktree, whose repository names it in turn; otherwise anybody could name anybody's repository.
            if read_text(own, "gitdir", SMALL_BYTES).strip() != str(link):
                raise NoCheckoutError
            found = cls(own, (own / read_text(own, "commondir", SMALL_BYTES).strip()).resolve())
        else:
            found = cls(link, link)
        for path in (directory, found.own, found.common, found.objects):
            _require_own(path)
        _require_no_links(found.objects)
        return found

    @property
    def objects(self) -> Path:
        return self.common / "objects"

    def commit(self) -> str:
        head = read_text(self.own, "HEAD", SMALL_BYTES).strip()
        name = head.removeprefix("ref:").strip()
        found = self._resolve(name) if head.startswith("ref:") else head
        if not COMMIT.fullmatch(found):
            raise NoCheckoutError
        return found

    def _resolve(self, name: str) -> str:
        if not REF.fullmatch(name):
            raise NoCheckoutError
        for place in (self.own, self.common):
            try:
                return read_text(place, name, SMALL_BYTES).strip()
            except FileNotFoundError:
                continue
        lines = read_text(self.common, "packed-refs", INDEX_BYTES).splitlines()
        return next((line.partition(" ")[0] for line in lines if line.partition(" ")[2] == name), "")


def _require_own(path: Path) -> None:
    """Only a directory of this user: what another one has prepared would be read with this user's rights."""
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise NoCheckoutError


def _require_no_links(objects: Path) -> None:
    """Objects of another repository, by a link or as alternates, may be ones that only this user can read."""
    if os.path.lexists(objects / "info" / "alternates"):
        raise NoCheckoutError
    for parent, directories, names in os.walk(objects):
        if any(Path(parent, name).is_symlink() for name in (*directories, *names)):
            raise NoCheckoutError


def _state(repository: _Repository, private: Path, directory: Path, paths: Sequence[str]) -> CheckoutState:
    commit, own = repository.commit(), private / "git"
    form = "sha256" if len(commit) == SHA256_DIGITS else "sha1"
    # Bare: otherwise git writes the path of a work tree into the configuration. Without the user's template of hooks.
    _git(private, {}, "init", "--quiet", "--bare", "--template=", f"--object-format={form}", str(own))
    # With its times of change, files need not be read again; it also knows which files a sparse checkout omits.
    written = (repository.own / "index").lstat().st_mtime_ns
    (own / "index").write_bytes(read_bytes(repository.own, "index", INDEX_BYTES))
    # Git compares seconds: it reads a file again whose time is not before that of the index.
    os.utime(own / "index", ns=(written, written))
    (own / "info").mkdir()
    with contextlib.suppress(FileNotFoundError):
        (own / "info" / "exclude").write_bytes(read_bytes(repository.common, "info/exclude", SMALL_BYTES))
    borrowed = {
        "GIT_DIR": str(own),
        "GIT_WORK_TREE": str(directory),
        "GIT_ALTERNATE_OBJECT_DIRECTORIES": str(repository.objects),
    }
    # In submodules, git would run its own commands with their configuration.
    safe = ("--no-ext-diff", "--no-textconv", "--ignore-submodules=all")
    patch = _git(directory, borrowed, "diff", "--binary", "--no-color", *safe, commit, "--", *paths, NO_LFS)
    listed = _git(directory, borrowed, "ls-files", "--others", "--exclude-standard", "-z", "--", *paths)
    names = listed.decode(errors="surrogateescape").split("\0")
    return CheckoutState(commit, patch, [name for name in names if name and not is_ignored(name)])


def _git(directory: Path, borrowed: Mapping[str, str], *arguments: str) -> bytes:
    """The output of git without the configuration of the machine and of the user.

    A .gitattributes could choose among the filters there.
    """
    environment = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": "/nonexistent",
        "LC_ALL": "C",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_ALLOW_PROTOCOL": "",
        "GIT_TERMINAL_PROMPT": "0",
        **borrowed,
    }
    return subprocess.run(
        ["git", *arguments],
        env=environment,
        cwd=directory,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        timeout=GIT_SECONDS,
        check=True,
    ).stdout
